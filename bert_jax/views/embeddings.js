// Draws the map of `bert-jax inspect embeddings`, and shows the layer and pooling that are chosen.
const layer = byId('layer'), pooling = byId('pooling'), find = byId('find'), svg = byId('map');
const GROUPS = 12; // colours; points of further groups share the last one
let chosen = 0, group = null;

// A point has the colour of its label; words have the colour of their text.
const groupsOf = data.rows.map(row => data.labels[row]
  ?? (data.words ? data.texts[row] : null));
const counts = new Map();
for (const name of groupsOf) if (name !== null) counts.set(name, (counts.get(name) || 0) + 1);
const names = [...counts.keys()].sort((a, b) => counts.get(b) - counts.get(a));
const groupOf = i => Math.min(names.indexOf(groupsOf[i]), GROUPS - 1);

const view = () => data.views[`${layer.value} ${pooling.value}`];
const isFound = i => (group === null || groupOf(i) === group)
  && data.names[i].toLowerCase().includes(find.value.trim().toLowerCase());

const points = data.names.map((name, i) => {
  const point = svg.appendChild(document.createElementNS(SVG, 'circle'));
  point.setAttribute('r', .018);
  point.style.fill = groupsOf[i] === null ? 'var(--c1)' : hue(groupOf(i));
  point.appendChild(document.createElementNS(SVG, 'title')).textContent = name;
  point.addEventListener('click', () => choose(i));
  return point;
});

const lines = data.names.map((name, i) => {
  const line = document.querySelector('#near tbody').appendChild(make('tr'));
  line.append(make('td', { className: 'n', textContent: data.places[i] }), make('th'),
    make('td', { className: 'n', textContent: data.counts[i] }),
    make('td', { className: 'near' }), make('td', { className: 'near' }));
  line.cells[1].append(make('bdi', { dir: 'auto', textContent: name }));
  line.cells[1].addEventListener('click', () => choose(i));
  return line;
});

function choose(i) {
  chosen = i;
  show();
}

/** Return the neighbours of a point among the points, and in the vocabulary. */
function nearOf(i) {
  const [ids, cosines] = view().near;
  return ids[i].map((other, k) =>
    ({ name: data.names[other], place: data.places[other], cosine: cosines[i][k], i: other }));
}
function wordsOf(i) {
  const [found, cosines] = view().words || [[], []];
  return (found[i] || []).map((name, k) => ({ name, place: '', cosine: cosines[i][k] }));
}

/** Make an element for each neighbour; those that are points are buttons that choose them. */
function makeNear(entries, tag) {
  return entries.map(({ name, place, cosine, i }) => {
    const item = make(tag), label = item.appendChild(make(i === undefined ? 'span' : 'button',
      { className: 'go' }));
    label.append(make('bdi', { textContent: name }));
    item.append(' ', make('small', { textContent: place }), ' ',
      make('b', { textContent: cosine.toFixed(3) }));
    if (i !== undefined) label.addEventListener('click', () => choose(i));
    return item;
  });
}

function showOne() {
  const box = byId('one'), words = makeNear(wordsOf(chosen), 'li'), list = make('ol');
  const said = `${data.places[chosen]} · ${data.texts[data.rows[chosen]]}`;
  list.append(...makeNear(nearOf(chosen), 'li'));
  box.replaceChildren(make('h3', { textContent: data.names[chosen] }),
    make('p', { className: 'note', textContent: said }),
    make('h4', { textContent: 'Nearest here' }), list);
  if (!words.length) return;
  const last = make('ol');
  last.append(...words);
  box.append(make('h4', { textContent: 'Nearest in the vocabulary' }), last);
}

/** Place the points of the chosen layer and pooling, and list the neighbours of each. */
function showView() {
  const { xy, shares } = view();
  const xs = xy.map(([x]) => x), ys = xy.map(([, y]) => -y);
  const [left, top] = [xs, ys].map(places => Math.min(...places) - .1);
  const [right, bottom] = [xs, ys].map(places => Math.max(...places) + .1);
  svg.setAttribute('viewBox', [left, top, right - left, bottom - top].join(' '));
  points.forEach((point, i) => {
    point.setAttribute('cx', xs[i]);
    point.setAttribute('cy', ys[i]);
    lines[i].cells[3].replaceChildren(...makeNear(nearOf(i), 'span'));
    lines[i].cells[4].replaceChildren(...makeNear(wordsOf(i), 'span'));
  });
  const axes = shares?.map(share => `${(100 * share).toFixed(1)} %`).join(' and ');
  byId('map-note').textContent = (axes ? `Axes: ${axes} of the variance. ` : '')
    + 'A click chooses a point.';
  show();
}

/** Show which points are found, chosen and near the chosen one. */
function show() {
  const near = new Set(view().near[0][chosen]);
  points.forEach((point, i) => {
    point.classList.toggle('dim', !isFound(i));
    point.classList.toggle('neighbour', near.has(i));
    point.classList.toggle('chosen', i === chosen);
    lines[i].hidden = !isFound(i);
  });
  const found = lines.filter(line => !line.hidden).length;
  byId('found').textContent = found < points.length ? `${found} of ${points.length}` : '';
  showOne();
}

// --- the page -----------------------------------------------------------------------------------

names.slice(0, GROUPS).forEach((name, k) => {
  const rest = k === GROUPS - 1 ? names.slice(k) : [name];
  const count = rest.reduce((sum, one) => sum + counts.get(one), 0);
  const button = byId('legend').appendChild(make('button', { type: 'button' }));
  button.append(make('bdi', { textContent: rest.length > 1 ? 'others' : name }), `: ${count}`);
  button.style.setProperty('--hue', hue(k));
  button.setAttribute('aria-pressed', true);
  button.addEventListener('click', () => {
    group = group === k ? null : k;
    [...byId('legend').children].forEach((one, i) =>
      one.setAttribute('aria-pressed', group === null || group === i));
    show();
  });
});
const known = Object.keys(data.views).map(key => key.split(' '));
[layer, pooling].forEach((select, at) => [...select.options].forEach(option => {
  option.disabled = !known.some(key => key[at] === option.value);
}));
find.addEventListener('input', show);
for (const control of [layer, pooling]) control.addEventListener('change', showView);
byId('controls').addEventListener('submit', event => {
  event.preventDefault();
  const found = points.map((_, i) => i).filter(isFound);
  if (found.length) choose(found[(found.indexOf(chosen) + 1) % found.length]);
});
showView();
document.documentElement.dataset.ready = '1';
