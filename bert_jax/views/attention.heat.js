// Weights as shaded cells: of one head, of one token, and of all heads as thumbnails.

const ROOM = 90, BAR = 120;  // pixels of a label at most, and of the scale of shades
const SMALL = 48;  // pixels of a thumbnail at most; one may be the largest of several weights

let colours = {};
function readColours() {
  for (const name of ['line', 'card', 'c1']) {
    const value = css(name).slice(1);
    const full = value.length === 3 ? [...value].map(c => c + c).join('') : value;
    colours[name] = [0, 2, 4].map(i => parseInt(full.slice(i, i + 2), 16));
  }
}

/** Draw numbers from 0 to 1, a pixel each; null is masked. */
function picture(rows, columns, value) {
  const canvas = make('canvas', { width: columns, height: rows }), pen = canvas.getContext('2d');
  const image = pen.createImageData(columns, rows), { card, c1, line } = colours;
  for (let r = 0, k = 0; r < rows; r++) for (let c = 0; c < columns; c++, k += 4) {
    const w = value(r, c), t = w === null ? 0 : strength(w);
    for (let i = 0; i < 3; i++)
      image.data[k + i] = w === null ? line[i] : card[i] + t * (c1[i] - card[i]);
    image.data[k + 3] = 255;
  }
  pen.putImageData(image, 0, 0);
  return canvas;
}

/** Enlarge small pictures, which programs that open a saved figure would blur. */
function enlarged(small) {
  const times = Math.max(1, Math.floor(512 / Math.max(small.width, small.height)));
  const canvas = make('canvas', { width: small.width * times, height: small.height * times });
  const pen = canvas.getContext('2d');
  pen.imageSmoothingEnabled = false;
  pen.drawImage(small, 0, 0, canvas.width, canvas.height);
  return canvas;
}

/** Labelled grid of cells with a frame that the pointer and the arrow keys move. */
class Heat {
  constructor(box, settings) {
    Object.assign(this, { most: 30, square: true, scale: false, ...settings });
    this.scroll = box.appendChild(make('div', { className: 'scroll' }));
    this.svg = draw('svg', this.scroll, { class: 'heat', tabindex: 0, role: 'application',
      'aria-label': `${this.label}; arrow keys move` });
    this.svg.addEventListener('pointermove', event => this.hover(this.cell(event)));
    this.svg.addEventListener('click', event => this.choose(this.cell(event)));
    this.svg.addEventListener('focus', () => this.hover(this.at()));
    this.svg.addEventListener('keydown', event => {
      const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1],
        ArrowRight: [0, 1] }[event.key];
      if (!step || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      const [r, c] = this.at();
      this.choose(this.inside(r + step[0], c + step[1]));
    });
    box.append(saving(this.file, () => standalone(this.svg)));
  }

  cell(event) {
    const box = this.svg.getBoundingClientRect();
    return this.inside(Math.floor((event.clientY - box.top - this.top) / this.high),
      Math.floor((event.clientX - box.left - this.left) / this.wide));
  }

  inside(row, column) {
    return [clamp(row, 0, this.rows.length - 1), clamp(column, 0, this.columns.length - 1)];
  }

  hover(cell) { this.tell(...cell); }

  choose(cell) {
    this.pick(...cell);
    this.tell(...cell);
  }

  /** Choose the size of a cell and the room for labels. */
  measure() {
    const columns = this.columns.length, room = this.scroll.clientWidth;
    const widest = names => Math.min(ROOM, 8 + Math.max(...names.map(n => widthOf(n, FONT))));
    const wide = left => clamp(Math.floor((room - left - 2) / columns), 3, this.most);
    this.left = widest(this.rows);
    this.wide = wide(this.left);
    this.high = this.square ? this.wide : 16;
    if (this.high < 12) {  // too low for labels
      this.left = 2;
      this.wide = wide(2);
      this.high = this.square ? this.wide : 16;
    }
    const longest = widest(this.columns);
    this.labelled = this.wide >= 12;
    this.flat = longest <= this.wide + 4;
    this.top = !this.labelled ? 2 : this.flat ? 18 : longest;
  }

  write(content, x, y, most, attributes = {}) {
    const squeeze = widthOf(content, FONT) > most
      ? { textLength: most, lengthAdjust: 'spacingAndGlyphs' } : {};
    draw('text', this.svg, { x, y, class: 'cell-label', ...squeeze, ...attributes })
      .textContent = isolated(content);
  }

  draw() {
    this.measure();
    const { svg, left, top, wide, high } = this, flat = this.flat;
    const across = this.columns.length * wide, down = this.rows.length * high;
    const width = Math.ceil(Math.max(left + across + 2, this.scale ? left + BAR + 130 : 0));
    const height = Math.ceil(top + down + 2 + (this.scale ? 40 : 0));
    svg.replaceChildren();
    Object.entries({ width, height, viewBox: `0 0 ${width} ${height}` })
      .forEach(([name, value]) => svg.setAttribute(name, value));
    if (left > 2) this.rows.forEach((name, r) =>
      this.write(name, left - 5, top + (r + .5) * high + 4, left - 6, { 'text-anchor': 'end' }));
    if (this.labelled) this.columns.forEach((name, c) => {
      const x = left + (c + .5) * wide;
      if (flat) this.write(name, x, top - 5, wide, { 'text-anchor': 'middle' });
      else this.write(name, 0, 4, top - 6, { transform: `translate(${x} ${top - 4}) rotate(-90)` });
    });
    const asked = [css('card'), wide, ...this.key()].join();
    if (asked !== this.drawn) this.cells = this.image().toDataURL();
    this.drawn = asked;
    draw('image', svg, { href: this.cells, x: left, y: top, width: across, height: down,
      preserveAspectRatio: 'none', style: 'image-rendering: pixelated' });
    draw('rect', svg, { x: left - .5, y: top - .5, width: across + 1, height: down + 1,
      class: 'cell-frame' });
    if (this.scale) this.shades(Math.max(left, 8), top + down + 12);
    const [r, c] = this.at();
    draw('rect', svg, { x: left + c * wide, y: top + r * high, width: wide, height: high,
      class: 'cursor', 'data-cursor': '' });
  }

  /** Draw the scale of shades, and what is masked. */
  shades(x, y) {
    const bar = picture(1, BAR, (_, c) => (c / (BAR - 1)) ** 2).toDataURL();
    draw('image', this.svg, { href: bar, x, y, width: BAR, height: 10,
      preserveAspectRatio: 'none' });
    draw('rect', this.svg, { x: x - .5, y: y - .5, width: BAR + 1, height: 11,
      class: 'cell-frame' });
    for (const w of [0, .1, .5, 1])
      this.write(`${w}`, x + BAR * strength(w), y + 24, ROOM, { 'text-anchor': 'middle' });
    if (!data.causal && !data.windows.some(Boolean)) return;
    draw('rect', this.svg, { x: x + BAR + 30, y, width: 14, height: 10, fill: css('line') });
    this.write('masked', x + BAR + 50, y + 9, ROOM);
  }
}

const rowsOf = count => Array.from({ length: count }, (_, i) => `${i + 1}`);
const shown = (text, layer, head, i, j) => !text.sees(layer, head, i, j) ? null
  : text.counts(i, j) ? text.weight(layer, head, i, j) : 0;
const asked = () => [state.layer, state.head, state.between, state.plain];

function matrix(box, text) {
  return new Heat(box, {
    label: 'weights of the chosen head', most: clamp(Math.floor(960 / text.n), 3, 30),
    rows: text.tokens, columns: text.tokens, scale: true,
    file: () => fileName('matrix', text), key: asked,
    image: () => enlarged(picture(text.n, text.n,
      (i, j) => shown(text, state.layer, state.head, i, j))),
    at: () => [Math.min(state.from, text.n - 1), Math.min(state.to, text.n - 1)],
    pick: (from, to) => change({ from, to }),
    tell: (from, to) => sayWeight(text, state.layer, state.head, from, to),
  });
}

function row(box, text) {
  const from = () => Math.min(state.from, text.n - 1), to = () => Math.min(state.to, text.n - 1);
  const part = (what, names, place, current, move) => {
    const label = box.appendChild(make('p', { className: 'label' }));
    const heat = new Heat(box, {
      label: 'weights of one token', rows: names, columns: text.tokens, square: false,
      file: () => `${fileName(`token${from() + 1}-${what}`, text)}`,
      key: () => [...asked(), from()],
      image: () => enlarged(picture(names.length, text.n,
        (k, j) => shown(text, ...place(k), from(), j))),
      at: () => [current(), to()],
      pick: (k, j) => change({ ...move(k), to: j }),
      tell: (k, j) => sayWeight(text, ...place(k), from(), j),
    });
    return { label, draw: () => heat.draw() };
  };
  const across = part('heads', [...rowsOf(heads), 'rollout'], k => [state.layer, k],
    () => state.head, k => ({ head: k }));
  const along = part('layers', rowsOf(layers), k => [k, state.head], () => state.layer,
    k => ({ layer: k }));
  return { draw() {
    const start = (what, label) => label.replaceChildren(token(text, from()),
      ` ${from() + 1} in ${what}`);
    start(`every head of layer ${state.layer + 1}`, across.label);
    start(`every layer of ${state.head < heads ? `head ${state.head + 1}` : 'the rollout'}`,
      along.label);
    across.draw();
    along.draw();
  } };
}

function thumbnails(text) {
  const size = Math.min(SMALL, text.n), place = i => Math.floor(i * size / text.n);
  const places = Int32Array.from({ length: text.n }, (_, i) => place(i));
  return (layer, head) => {
    const found = new Int32Array(size * size), weights = text.head(layer, head);
    for (let i = 0, k = 0; i < text.n; i++) for (let j = 0; j < text.n; j++, k++) {
      const at = places[i] * size + places[j];
      if (weights[k] > found[at]) found[at] = weights[k];
    }
    return { size, found };
  };
}

function model(box, text) {
  const small = thumbnails(text), all = [];
  for (let layer = 0; layer < layers; layer++)
    for (let head = 0; head <= heads; head++) all.push(small(layer, head));
  const heat = new Heat(box, {
    label: 'thumbnails of every layer and head', most: 72,
    rows: rowsOf(layers), columns: [...rowsOf(heads), 'rollout'],
    file: () => fileName('heads', text), key: () => [],
    image: () => {
      const cell = Math.max(heat.wide, SMALL), gap = 3;
      const sheet = make('canvas', { width: (heads + 1) * cell, height: layers * cell }),
        pen = sheet.getContext('2d');
      pen.fillStyle = css('line');
      pen.fillRect(0, 0, sheet.width, sheet.height);
      pen.imageSmoothingEnabled = false;
      all.map(({ size, found }) => picture(size, size, (r, c) => found[r * size + c] / scale))
        .forEach((image, k) => pen.drawImage(image, k % (heads + 1) * cell + gap / 2,
          Math.floor(k / (heads + 1)) * cell + gap / 2, cell - gap, cell - gap));
      return sheet;
    },
    at: () => [state.layer, state.head],
    pick: (layer, head) => change({ layer, head }),
    tell: (layer, head) => sayHead(text, layer, head),
  });
  return heat;
}
