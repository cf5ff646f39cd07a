'use strict';
// What the scripts of all pages share: elements, colours, the address, and figures saved as files.

const make = (name, settings = {}) => Object.assign(document.createElement(name), settings);
const draw = (name, parent, attributes = {}) => {
  const made = parent.appendChild(document.createElementNS('http://www.w3.org/2000/svg', name));
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
};
const clamp = (x, low, high) => Math.max(low, Math.min(high, x));
const bytes = text => Uint8Array.from(atob(text), c => c.charCodeAt(0));
// A text keeps its own direction, whatever is around it.
const isolated = text => '\u2068' + text + '\u2069';

/** Return a colour of the page, such as 'ink', in the scheme that is shown. */
const css = name => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const HUES = 12;
const hue = k => `k${k % HUES + 1}`;

const ruler = make('canvas').getContext('2d');
const widthOf = (text, font) => {
  ruler.font = font;
  return ruler.measureText(text).width;
};

/** Write what is shown into the address; a page inside a notebook has no address of its own. */
function toHash(hash) {
  try { history.replaceState(null, '', hash); } catch { /* about:srcdoc */ }
}

// --- files --------------------------------------------------------------------------------------

const STYLES = ['display', 'fill', 'fill-opacity', 'font-family', 'font-size', 'font-weight',
  'image-rendering', 'opacity', 'paint-order', 'stroke', 'stroke-linejoin', 'stroke-opacity',
  'stroke-width'];

/** Return an SVG as text with its size: the page's styles and ground, no mark of a choice. */
function standalone(svg) {
  const copy = svg.cloneNode(true), { width, height } = svg.viewBox.baseVal;
  const copies = [...copy.querySelectorAll('*')];
  if (svg.isConnected) [...svg.querySelectorAll('*')].forEach((one, i) => {
    const style = getComputedStyle(one);
    for (const name of STYLES) copies[i].setAttribute(name, style.getPropertyValue(name));
    for (const name of ['class', 'style', 'tabindex']) copies[i].removeAttribute(name);
  });
  copy.querySelectorAll('[data-cursor], [display=none]').forEach(one => one.remove());
  for (const name of ['class', 'style', 'tabindex']) copy.removeAttribute(name);
  Object.entries({ width, height, 'font-family': 'system-ui, sans-serif' }).forEach(
    ([name, value]) => copy.setAttribute(name, value));
  copy.prepend(draw('rect', copy, { width, height, fill: css('card') }));
  return { text: new XMLSerializer().serializeToString(copy), width, height };
}

/** Draw entries of [colour, name] into an SVG, in rows from some height; return where they end. */
function drawLegend(svg, entries, width, y, size = 13) {
  let x = 8;
  for (const [colour, name] of entries) {
    const long = widthOf(name, `${size}px system-ui, sans-serif`) + (colour ? 40 : 16);
    if (x > 8 && x + long > width) [x, y] = [8, y + 1.6 * size];
    if (colour) draw('line', svg, { x1: x, x2: x + 16, y1: y, y2: y, stroke: colour,
      'stroke-width': 4 });
    draw('text', svg, { x: x + (colour ? 22 : 0), y: y + .35 * size,
      style: `font-size: ${size}px; fill: ${css('ink')}`, 'font-size': size, fill: css('ink') })
      .textContent = isolated(name);
    x += long;
  }
  return y + 1.2 * size;
}

/** Draw an SVG of some size in pixels three times as fine, as a PNG. */
async function raster(blob, width, height) {
  const fine = Math.min(3, 16000 / Math.max(width, height));
  const image = new Image(), address = URL.createObjectURL(blob);
  image.src = address;
  await image.decode();
  const canvas = make('canvas', { width: Math.round(width * fine),
    height: Math.round(height * fine) });
  canvas.getContext('2d').drawImage(image, 0, 0, canvas.width, canvas.height);
  URL.revokeObjectURL(address);
  return new Promise(done => canvas.toBlob(done, 'image/png'));
}

/** Return buttons that save a figure; the functions give a file's name and `standalone` of it. */
function saving(name, figure) {
  const bar = make('p', { className: 'save', textContent: 'Save as ' });
  for (const kind of ['SVG', 'PNG']) {
    const button = bar.appendChild(make('button', { type: 'button', textContent: kind }));
    button.addEventListener('click', async () => {
      const { text, width, height } = figure();
      const drawn = new Blob([text], { type: 'image/svg+xml' });
      const blob = kind === 'SVG' ? drawn : await raster(drawn, width, height);
      const href = URL.createObjectURL(blob);
      make('a', { href, download: `${name()}.${kind.toLowerCase()}` }).click();
      setTimeout(() => URL.revokeObjectURL(href), 60000);
    });
  }
  return bar;
}
