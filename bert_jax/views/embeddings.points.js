// The numbers of the page of embeddings: its points, what they are called, and which are shown.

const data = JSON.parse(document.getElementById('data').textContent);
const $ = id => document.getElementById(id);
const count = data.names.length;
const add = (name, parent, props = {}) => parent.appendChild(make(name, props));
const fixed = (x, places) => x.toFixed(places).replace(/^-(?=0\.0*$)/, '');

// --- numbers ------------------------------------------------------------------------------------

const buffer = text => bytes(text).buffer;
const lists = packed => {  // [N] of [[number, cosine], ...]
  if (!packed) return null;
  const [k, ids, cosines] = [packed[0], new Uint16Array(buffer(packed[1])),
    new Int16Array(buffer(packed[2]))];
  return Array.from({ length: count }, (_, i) =>
    Array.from({ length: k }, (_, j) => [ids[i * k + j], cosines[i * k + j] / 1e4]));
};
const read = key => {
  const v = data.views[key];
  return v && { xy: new Float32Array(buffer(v.xy)), shares: v.shares, near: lists(v.near),
    plain: lists(v.plain),
    words: lists(v.words)?.map(list => list.filter(([, cosine]) => cosine >= data.least)),
    cosines: v.cosines && new Float32Array(buffer(v.cosines)) };
};
const cosine = (i, j) => i === j ? 1
  : view.cosines[Math.min(i, j) * count - Math.min(i, j) * (Math.min(i, j) + 3) / 2
    + Math.max(i, j) - 1];

let at = [...data.start], view = read(at.join(' ')), chosen = -1;

// --- labels -------------------------------------------------------------------------------------

const cutter = typeof Intl !== 'undefined' && Intl.Segmenter && new Intl.Segmenter();
const short = (text, most) => {
  if (text.length <= most) return text;
  const units = cutter ? Array.from(cutter.segment(text.slice(0, 4 * most)), s => s.segment)
    : Array.from(text);
  return units.length <= most ? text : units.slice(0, most - 1).join('').trimEnd() + '…';
};
const nameOf = (i, most = 26) => short(data.names[i], most) || 'text ' + (i + 1);
/** Say which text a point is, or which word of one. */
const where = i => 'text ' + data.places[i].replace(':', ', word ');
const bdi = (parent, text) => add('bdi', parent, { textContent: text, dir: 'auto' });

// --- which points are shown ---------------------------------------------------------------------

const punctuation = new Set(data.punctuation);
const filter = { find: '', plain: false, group: -1 };
let groups = [], groupOf = [];  // [{ name, hue, size }], and the group of each point
const visible = i => !filter.plain || !punctuation.has(i);
const matches = i => visible(i) && (filter.group < 0 || groupOf[i] === filter.group)
  && (!filter.find || data.names[i].toLowerCase().includes(filter.find));
const near = i => (filter.plain && view.plain || view.near)[i];

/** Divide the points by their text or label; the largest groups have colours of their own. */
function colour(by) {
  const names = data.rows.map(row => by === 'text' ? 'text ' + (row + 1)
    : by === 'label' ? data.labels[row] ?? 'no label' : '');
  const sizes = new Map();
  for (const one of names) sizes.set(one, (sizes.get(one) || 0) + 1);
  let order = [...sizes.keys()];
  if (by === 'label' || order.length > HUES) order.sort((a, b) => sizes.get(b) - sizes.get(a));
  if (order.length > HUES) order = order.slice(0, HUES - 1);
  groups = by ? order.map((one, k) => ({ name: one, hue: hue(k), size: sizes.get(one) })) : [];
  const rest = count - groups.reduce((all, { size }) => all + size, 0);
  if (by && rest) groups.push({ name: 'others', hue: 'soft', size: rest });
  groupOf = names.map(one => by && order.includes(one) ? order.indexOf(one) : groups.length - 1);
  filter.group = -1;
}
