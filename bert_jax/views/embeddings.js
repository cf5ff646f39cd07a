// Draws the map of `bert-jax inspect embeddings`, and shows the layer and pooling that are chosen.
const byId = id => document.getElementById(id);
const layer = byId('layer'), pooling = byId('pooling'), find = byId('find'), plain = byId('plain');
const svg = byId('map'), lines = [...document.querySelectorAll('#near tbody tr')];
const GROUPS = 12; // colours; points of further groups share the last one
let chosen = 0, group = null;

// A point has the colour of its label; words have the colour of their text.
const groupsOf = data.rows.map(row => data.labels[row]
  ?? (data.words ? data.texts[row] : null));
const counts = new Map();
for (const name of groupsOf) if (name !== null) counts.set(name, (counts.get(name) || 0) + 1);
const names = [...counts.keys()].sort((a, b) => counts.get(b) - counts.get(a));
const colourOf = name => hue(Math.min(names.indexOf(name), GROUPS - 1));

const view = () => data.views[`${layer.value} ${pooling.value}`];
const isHidden = i => plain.checked && data.punctuation.includes(i);
function isFound(i) {
  const place = names.indexOf(groupsOf[i]);
  if (group !== null && Math.min(place, GROUPS - 1) !== group) return false;
  return data.names[i].toLowerCase().includes(find.value.trim().toLowerCase());
}

const points = data.names.map((name, i) => {
  const point = svg.appendChild(document.createElementNS(SVG, 'circle'));
  point.setAttribute('r', .018);
  point.style.fill = groupsOf[i] === null ? 'var(--c1)' : colourOf(groupsOf[i]);
  point.appendChild(document.createElementNS(SVG, 'title')).textContent = name;
  point.addEventListener('click', () => { chosen = i; show(); });
  return point;
});

/** List neighbours as buttons that choose them, or as text. */
function listNear(entries) {
  const list = make('ol');
  for (const { name, place, cosine, i } of entries) {
    const item = list.appendChild(make('li'));
    const label = item.appendChild(make(i === undefined ? 'span' : 'button', { className: 'go' }));
    label.append(make('bdi', { textContent: name }));
    item.append(' ', make('small', { textContent: place }), ' ',
      make('b', { textContent: cosine.toFixed(3) }));
    if (i !== undefined) label.addEventListener('click', () => { chosen = i; show(); });
  }
  return list;
}

function nearOf(i) {
  const [ids, cosines] = (plain.checked && view().plain) || view().near;
  return ids[i].map((other, k) =>
    ({ name: data.names[other], place: data.places[other], cosine: cosines[i][k], i: other }));
}
function wordsOf(i) {
  const [found, cosines] = view().words || [[], []];
  return (found[i] || []).map((name, k) => ({ name, place: '', cosine: cosines[i][k] }))
    .filter(({ cosine }) => cosine >= data.least);
}

function showOne() {
  const box = byId('one'), words = wordsOf(chosen), text = data.texts[data.rows[chosen]];
  box.hidden = false;
  box.replaceChildren(make('h3', { textContent: data.names[chosen] }),
    make('p', { className: 'note', textContent: `${data.places[chosen]} · ${text}` }),
    make('h4', { textContent: 'Nearest here' }), listNear(nearOf(chosen)));
  if (words.length) box.append(make('h4', { textContent: 'Nearest in the vocabulary' }),
    listNear(words));
}

/** Place the points of the chosen layer and pooling, and list the neighbours of each. */
function showView() {
  const current = view();
  const [xs, ys] = [0, 1].map(axis => current.xy.map(place => axis ? -place[1] : place[0]));
  const [left, top] = [xs, ys].map(places => Math.min(...places) - .1);
  svg.setAttribute('viewBox', [left, top, Math.max(...xs) + .1 - left,
    Math.max(...ys) + .1 - top].join(' '));
  points.forEach((point, i) => {
    point.setAttribute('cx', xs[i]);
    point.setAttribute('cy', ys[i]);
    for (const [cell, entries] of [[3, nearOf(i)], [4, wordsOf(i)]])
      lines[i].cells[cell].replaceChildren(...entries.map(({ name, place, cosine }) => {
        const item = make('span');
        item.append(make('bdi', { textContent: name }), ' ', make('small', { textContent: place }),
          ' ', make('b', { textContent: cosine.toFixed(3) }));
        return item;
      }));
  });
  byId('map-note').textContent = current.shares ? 'Axes: '
    + current.shares.map(share => `${(100 * share).toFixed(1)} %`).join(' and ')
    + ' of the variance. A click chooses a point.' : 'A click chooses a point.';
  show();
}

/** Show which points are found, chosen and near the chosen one. */
function show() {
  const near = new Set(nearOf(chosen).map(({ i }) => i));
  let found = 0;
  points.forEach((point, i) => {
    const hidden = isHidden(i), is = isFound(i);
    found += is && !hidden;
    point.style.display = hidden ? 'none' : '';
    point.classList.toggle('dim', !is);
    point.classList.toggle('neighbour', near.has(i));
    point.classList.toggle('chosen', i === chosen);
    lines[i].hidden = hidden || !is;
  });
  byId('found').textContent = find.value || group !== null ? `${found} of ${points.length}` : '';
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
for (const select of [layer, pooling])
  for (const option of [...select.options])
    option.disabled = !Object.keys(data.views).some(key =>
      key.split(' ')[select === layer ? 0 : 1] === option.value);
byId('plain-of').hidden = !data.punctuation.length;
find.addEventListener('input', show);
for (const control of [layer, pooling, plain]) control.addEventListener('change', showView);
byId('controls').addEventListener('submit', event => {
  event.preventDefault();
  const found = points.map((_, i) => i).filter(i => isFound(i) && !isHidden(i));
  if (found.length) chosen = found[(found.indexOf(chosen) + 1) % found.length];
  show();
});
for (const line of lines) line.addEventListener('click', () => {
  chosen = lines.indexOf(line);
  show();
});
byId('controls').hidden = false;
byId('first').hidden = true;
showView();
document.documentElement.dataset.ready = '1';
