'use strict';
// Draws the map of `bert-jax inspect embeddings` and shows other layers and poolings.
(() => {
const data = JSON.parse(document.getElementById('data').textContent);
const $ = id => document.getElementById(id);
const count = data.names.length;
const make = (name, parent, props = {}) =>
  Object.assign(parent.appendChild(document.createElement(name)), props);
const draw = (name, parent, attributes = {}) => {
  const made = parent.appendChild(document.createElementNS('http://www.w3.org/2000/svg', name));
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
};
const fixed = (x, places) => x.toFixed(places).replace(/^-(?=0\.0*$)/, '');
const clamp = (x, low, high) => Math.min(Math.max(x, low), high);

// --- numbers ------------------------------------------------------------------------------------

const bytes = text => Uint8Array.from(atob(text), c => c.charCodeAt(0)).buffer;
const lists = packed => {  // [N] of [[number, cosine], ...]
  if (!packed) return null;
  const [k, ids, cosines] = [packed[0], new Uint16Array(bytes(packed[1])),
    new Int16Array(bytes(packed[2]))];
  return Array.from({ length: count }, (_, i) =>
    Array.from({ length: k }, (_, j) => [ids[i * k + j], cosines[i * k + j] / 1e4]));
};
const read = key => {
  const v = data.views[key];
  return v && { xy: new Float32Array(bytes(v.xy)), shares: v.shares, near: lists(v.near),
    words: lists(v.words), cosines: v.cosines && new Float32Array(bytes(v.cosines)) };
};
const cosine = (i, j) => i === j ? 1
  : view.cosines[Math.min(i, j) * count - Math.min(i, j) * (Math.min(i, j) + 3) / 2
    + Math.max(i, j) - 1];

let at = [...data.start], view = read(at.join(' ')), chosen = -1;

// --- labels: a text keeps its own direction, whatever is around it ------------------------------

const cutter = typeof Intl !== 'undefined' && Intl.Segmenter && new Intl.Segmenter();
const short = (text, most) => {
  if (text.length <= most) return text;
  const units = cutter ? Array.from(cutter.segment(text.slice(0, 4 * most)), s => s.segment)
    : Array.from(text);
  return units.length <= most ? text : units.slice(0, most - 1).join('').trimEnd() + '…';
};
const isolated = text => '\u2068' + text + '\u2069';
const name = (i, most = 26) => short(data.names[i], most) || 'text ' + (i + 1);
const bdi = (parent, text) => make('bdi', parent, { textContent: text, dir: 'auto' });

// --- the map ------------------------------------------------------------------------------------

const map = $('map'), svg = draw('svg', map, { role: 'listbox',
  'aria-label': 'Map of the points; arrow keys move' });
const tip = make('div', map, { className: 'tip' });
const layers = ['lines', 'dots', 'labels'].map(() => draw('g', svg));
const [lines, dots, labels] = layers;
if (count > 300) map.classList.add('many');
const radius = count > 300 ? 4 : 6;
let places = [], width = 0, height = 0;
const pen = document.createElement('canvas').getContext('2d');
const points = data.names.map((_, i) => {
  const dot = draw('circle', dots, { r: radius, tabindex: i ? -1 : 0, role: 'option',
    'aria-selected': 'false' });
  dot.addEventListener('focus', () => choose(i));
  dot.addEventListener('click', () => dot.focus());
  dot.addEventListener('pointerenter', () => hover(i));
  dot.addEventListener('pointerleave', () => { tip.style.display = 'none'; });
  return dot;
});

function hover(i) {
  tip.textContent = data.poolings > 1 ? short(data.names[i], 300)
    : name(i) + '\n' + short(data.texts[data.rows[i]], 200);
  tip.style.display = 'block';
  const box = svg.getBoundingClientRect(), outer = map.getBoundingClientRect(), [x, y] = places[i];
  tip.style.left = clamp(box.left - outer.left + x + 12, 4,
    Math.max(4, outer.width - tip.offsetWidth - 6)) + 'px';
  tip.style.top = box.top - outer.top + (y > height / 2 ? y - tip.offsetHeight - 10 : y + 12)
    + 'px';
}

function place() {
  width = Math.max(240, map.clientWidth - 34);
  height = Math.round(clamp(width * 0.62, 300, 560));
  svg.setAttribute('viewBox', `0 0 ${width} ${height}`);
  svg.style.height = height + 'px';
  const ends = axis => {
    let low = Infinity, high = -Infinity;
    for (let i = axis; i < view.xy.length; i += 2) {
      low = Math.min(low, view.xy[i]);
      high = Math.max(high, view.xy[i]);
    }
    return [low, high];
  };
  const [left, right] = ends(0), [bottom, top] = ends(1), room = width < 560 ? 26 : 60;
  const scale = Math.min(  // one for both axes
    (width - 2 * room) / (right - left || 1), (height - 56) / (top - bottom || 1));
  places = points.map((_, i) => [width / 2 + (view.xy[2 * i] - (left + right) / 2) * scale,
    height / 2 - (view.xy[2 * i + 1] - (top + bottom) / 2) * scale]);
  points.forEach((dot, i) => {
    dot.setAttribute('cx', places[i][0].toFixed(2));
    dot.setAttribute('cy', places[i][1].toFixed(2));
    dot.dataset.x = view.xy[2 * i]; dot.dataset.y = view.xy[2 * i + 1];
    const best = view.near[i][0];
    dot.setAttribute('aria-label',
      isolated(name(i, 80))
        + (best ? `, nearest: ${isolated(name(best[0], 40))} ${fixed(best[1], 3)}` : ''));
  });
  const percent = view.shares && view.shares.map(s => (100 * s).toFixed(1) + ' %');
  $('map-name').textContent = data.method
    + (percent ? `: ${percent[0]} of the variance to the right, ${percent[1]} up` : '');
  $('map-note').textContent = view.xy.every(x => x === 0)
    ? 'All points are one vector here: the texts have not reached it yet.'
    : 'Choose a point with the pointer or the arrow keys; lines lead to its nearest neighbours.'
      + (data.method === 'PCA' ? '' : ' Distances between far groups say little on such a map.');
}

// Labels take the first free place beside their point, first those of the chosen one and its
// neighbours; labels without a free place are left out.
function label() {
  labels.replaceChildren(); lines.replaceChildren();
  const near = chosen < 0 ? [] : view.near[chosen].map(n => n[0]);
  points.forEach((dot, i) => {
    dot.classList.toggle('chosen', i === chosen);
    dot.classList.toggle('near', near.includes(i));
    dot.setAttribute('aria-selected', i === chosen);
    dot.setAttribute('tabindex', i === Math.max(chosen, 0) ? 0 : -1);
  });
  for (const k of near)
    draw('line', lines, { class: 'to', x1: places[chosen][0], y1: places[chosen][1],
      x2: places[k][0], y2: places[k][1] });
  const order = [...(chosen < 0 ? [] : [chosen]), ...near, ...points.keys()]
    .filter((x, i, all) => all.indexOf(x) === i);
  const taken = [], high = 17, most = width < 560 ? 14 : 26;
  const overlaps = (a, b) => a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3];
  let placed = 0;
  for (const i of order) {
    if (placed >= 120) break;
    const [x, y] = places[i], text = name(i, i === chosen ? most + 10 : most), gap = radius + 4;
    pen.font = `${i === chosen ? 650 : 400} 13px ${getComputedStyle(map).fontFamily}`;
    const wide = pen.measureText(text).width + 2;
    const spots = [[x + gap, y], [x - gap - wide, y], [x - wide / 2, y - gap - 8],
      [x - wide / 2, y + gap + 8],
      [x + gap - 2, y - 13], [x + gap - 2, y + 13], [x - gap - wide + 2, y - 13],
      [x - gap - wide + 2, y + 13]];
    const boxes = spots.map(([a, b]) => [a, b - high / 2, a + wide, b + high / 2]);
    const inside = b => b[0] >= 2 && b[2] <= width - 2 && b[1] >= 2 && b[3] <= height - 2;
    const open = b => inside(b) && !taken.some(t => overlaps(t, b));
    const free = b => open(b) && !places.some(([px, py], j) =>
      j !== i && overlaps([px - radius, py - radius, px + radius, py + radius], b));
    const box = boxes.find(free) || (i === chosen || near.includes(i) ? boxes.find(open) : null);
    if (!box) continue;
    taken.push(box); placed++;
    const shown = draw('text', labels, { class: 'label halo' + (i === chosen ? ' chosen' : ''),
      x: box[0], y: box[1] + 13 });
    shown.textContent = isolated(text);
  }
}

svg.addEventListener('keydown', event => {
  const way = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowUp: [0, -1],
    ArrowDown: [0, 1] }[event.key];
  let next = { Home: 0, End: count - 1, PageDown: (chosen + 1) % count,
    PageUp: (chosen + count - 1) % count }[event.key];
  if (way) {
    let best = Infinity;
    next = chosen;
    places.forEach(([x, y], i) => {
      const dx = x - places[chosen][0], dy = y - places[chosen][1];
      const along = dx * way[0] + dy * way[1];
      const cost = along + 2 * (Math.abs(dx * way[1]) + Math.abs(dy * way[0]));
      if (i !== chosen && along > 0.5 && cost < best) { best = cost; next = i; }
    });
  }
  if (next === undefined) return;
  event.preventDefault();
  points[next].focus();
  hover(next);
});
svg.addEventListener('focusout', () => { tip.style.display = 'none'; });

// --- the chosen point ---------------------------------------------------------------------------

function choose(i) {
  chosen = i;
  label();
  const box = $('one'), text = data.texts[data.rows[i]];
  if (box.hidden) { box.hidden = false; place(); label(); }
  box.replaceChildren();
  bdi(make('h3', box), short(data.names[i], 400));
  const tokens = `${data.tokens[i]} ${data.tokens[i] === 1 ? 'token' : 'tokens'}`;
  make('p', box, { className: 'note', textContent: `${i + 1} of ${count} · ${tokens}` });
  if (data.poolings === 1) bdi(make('p', box, { className: 'note' }), short(text, 200));
  const list = (title, items, called) => {
    if (!items || !items.length) return;
    make('h4', box, { textContent: title });
    const all = make('ol', box);
    for (const [k, c] of items) {
      const item = make('li', all);
      bdi(item, called(k));
      make('b', item, { textContent: fixed(c, 4) });
    }
  };
  list('nearest here, by cosine', view.near[i], k => short(data.names[k], 60));
  list('nearest in the vocabulary', view.words && view.words[i], k => data.vocabulary[k]);
}

// --- neighbours of all --------------------------------------------------------------------------

function neighbours() {
  const cells = (cell, items, called) => {
    cell.replaceChildren();
    for (const [k, c] of items) {
      const item = make('span', cell);
      bdi(item, called(k));
      item.append(' ');
      make('b', item, { textContent: fixed(c, 3) });
    }
  };
  [...$('near').tBodies[0].rows].forEach((row, i) => {
    cells(row.cells[3], view.near[i], k => short(data.names[k], 60));
    cells(row.cells[4], view.words ? view.words[i] : [], k => data.vocabulary[k]);
  });
  $('spoken').textContent = view.words ? 'nearest in the vocabulary' : '';
}

// --- cosines ------------------------------------------------------------------------------------

const table = $('cosines');
const cells = table && [...table.tBodies[0].rows].map(row => [...row.cells].slice(1));

function cosines() {
  if (!table) return;
  const own = $('ends').value === 'own';
  let low = Infinity, high = -Infinity;
  for (const c of view.cosines) { low = Math.min(low, c); high = Math.max(high, c); }
  if (!own) [low, high] = [-1, 1];
  $('low').textContent = low.toFixed(own ? 3 : 0);
  $('high').textContent = high.toFixed(own ? 3 : 0);
  $('heat').classList.toggle('both', !own);
  cells.forEach((row, i) => row.forEach((cell, j) => {
    const c = cosine(i, j), part = own ? (c - low) / (high - low || 1) : Math.abs(c);
    cell.style.setProperty('--c', clamp(part, 0, 1).toFixed(3));
    cell.classList.toggle('below', !own && c < 0);
    if (data.numbers) cell.textContent = fixed(c, 2);
    cell.setAttribute('aria-label',
      `${isolated(name(i))} and ${isolated(name(j))}: ${fixed(c, 6)}`);
  }));
}

function tell(cell) {
  const [i, j] = [cell.parentNode.rowIndex - 1, cell.cellIndex - 1];
  if (i < 0 || j < 0) return;
  const out = $('cosine-at');
  out.replaceChildren();
  bdi(out, name(i, 80)); out.append(' and '); bdi(out, name(j, 80)); out.append(': ');
  make('b', out, { textContent: fixed(cosine(i, j), 6) });
}

if (table) {
  table.setAttribute('role', 'grid');
  $('ends-of').hidden = false;
  $('ends').addEventListener('change', cosines);
  cells.flat().forEach((cell, n) => {
    cell.tabIndex = n ? -1 : 0;
    cell.setAttribute('role', 'gridcell');
  });
  table.addEventListener('pointerover', event => {
    if (event.target.closest('td')) tell(event.target.closest('td'));
  });
  table.addEventListener('focusin', event => tell(event.target));
  table.addEventListener('keydown', event => {
    const [i, j] = [event.target.parentNode.rowIndex - 1, event.target.cellIndex - 1];
    const to = { ArrowRight: [i, j + 1], ArrowLeft: [i, j - 1], ArrowDown: [i + 1, j],
      ArrowUp: [i - 1, j],
      Home: [i, 0], End: [i, count - 1] }[event.key];
    const cell = to && cells[to[0]] && cells[to[0]][to[1]];
    if (!to) return;
    event.preventDefault();
    if (!cell) return;
    event.target.tabIndex = -1; cell.tabIndex = 0; cell.focus();
  });
}

// --- numbers of the pictures --------------------------------------------------------------------

for (const figure of document.querySelectorAll('.picture')) {
  const img = figure.querySelector('img'), frame = img.parentNode,
    out = figure.querySelector('.read');
  const [wide, high, end] = [+img.getAttribute('width'), +img.getAttribute('height'),
    +figure.dataset.end];
  const names = figure.dataset.names ? JSON.parse(figure.dataset.names) : null;
  const same = figure.dataset.row === figure.dataset.column;
  const mark = make('div', frame, { className: 'at', hidden: true });
  let pixels = null, row = 0, column = 0;
  const show = () => {
    if (!pixels) {
      const canvas = Object.assign(document.createElement('canvas'), { width: wide, height: high });
      const pen = canvas.getContext('2d', { willReadFrequently: true });
      pen.drawImage(img, 0, 0);
      pixels = pen.getImageData(0, 0, wide, high).data;
    }
    const p = 4 * (row * wide + column), size = pixels[p + 3] / 255 * end,
      value = pixels[p] < pixels[p + 2] ? -size : size;
    out.replaceChildren(figure.dataset.row + ' ');
    bdi(out, names ? names[row] : String(row));
    out.append(`, ${figure.dataset.column} ${names && same ? names[column] : column}: `);
    make('b', out, { textContent: (pixels[p + 3] === 255 ? 'at least ' : 'about ')
      + value.toPrecision(2) });
    mark.hidden = false;
    mark.style.left = (column + .5) / wide * 100 + '%';
    mark.style.top = (row + .5) / high * 100 + '%';
  };
  frame.tabIndex = 0;
  frame.setAttribute('role', 'application');
  frame.setAttribute('aria-label', img.alt + '; arrow keys read numbers off');
  frame.addEventListener('focus', show);
  frame.addEventListener('pointermove', event => {
    const box = img.getBoundingClientRect();
    column = clamp(Math.floor((event.clientX - box.left) / box.width * wide), 0, wide - 1);
    row = clamp(Math.floor((event.clientY - box.top) / box.height * high), 0, high - 1);
    show();
  });
  frame.addEventListener('keydown', event => {
    const way = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0],
      ArrowUp: [-1, 0] }[event.key];
    if (!way) return;
    event.preventDefault();
    const far = event.shiftKey ? 10 : 1;
    row = clamp(row + far * way[0], 0, high - 1);
    column = clamp(column + far * way[1], 0, wide - 1);
    show();
  });
}

// --- which view ---------------------------------------------------------------------------------

function show() {
  view = read(at.join(' '));
  place(); label(); neighbours(); cosines();
  if (chosen >= 0) choose(chosen);
  $('down').disabled = at[0] === 0; $('up').disabled = at[0] === data.layers - 1;
}
if (Object.keys(data.views).length > 1) {
  $('controls').hidden = false; $('first').hidden = true;
  const turn = to => { at[0] = clamp(to, 0, data.layers - 1); $('layer').value = at[0]; show(); };
  $('layer').addEventListener('change', () => turn(+$('layer').value));
  $('down').addEventListener('click', () => turn(at[0] - 1));
  $('up').addEventListener('click', () => turn(at[0] + 1));
  $('pooling').addEventListener('change', () => { at[1] = +$('pooling').value; show(); });
  $('controls').addEventListener('submit', event => event.preventDefault());
}
new ResizeObserver(() => {
  if (Math.abs(Math.max(240, map.clientWidth - 34) - width) > 1) { place(); label(); }
}).observe(map);
show();
choose(0);
})();
