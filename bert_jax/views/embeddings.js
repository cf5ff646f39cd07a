// Draws the map of `bert-jax inspect embeddings` and shows other layers and poolings.

// --- the map ------------------------------------------------------------------------------------

const map = $('map'), svg = draw('svg', map, { role: 'listbox',
  'aria-label': 'Map of the points; arrow keys move' });
const tip = add('div', map, { className: 'tip' });
const layers = ['lines', 'dots', 'labels'].map(() => draw('g', svg));
const [lines, dots, labels] = layers;
if (count > 300) map.classList.add('many');
map.append(saving(() => `embeddings-${data.method}-${$('layer').value}`.toLowerCase(), figure));
const radius = count > 300 ? 4 : 6;
let places = [], width = 0, height = 0;
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
  const label = data.labels[data.rows[i]];
  tip.textContent = (data.poolings > 1 ? short(data.names[i], 300)
    : nameOf(i) + '\n' + short(data.texts[data.rows[i]], 200)) + (label ? '\n' + label : '');
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
    for (let i = 0; i < count; i++) if (visible(i)) {
      low = Math.min(low, view.xy[2 * i + axis]);
      high = Math.max(high, view.xy[2 * i + axis]);
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
    const best = near(i)[0];
    dot.setAttribute('aria-label',
      isolated(nameOf(i, 80))
        + (best ? `, nearest: ${isolated(nameOf(best[0], 40))} ${fixed(best[1], 3)}` : ''));
  });
  const percent = view.shares && view.shares.map(s => (100 * s).toFixed(1) + ' %');
  $('map-name').textContent = data.how
    + (percent ? `: ${percent[0]} of the variance to the right, ${percent[1]} up` : '');
  $('map-note').textContent = view.xy.every(x => x === 0)
    ? 'All points are one vector here: the texts have not reached it yet.'
    : 'Choose a point with the pointer or the arrow keys; lines lead to its nearest neighbours.'
      + (data.method === 'PCA' ? '' : ' Distances between far groups say '
        + 'little on such a map, and another seed gives another.');
}

// Labels take the first free place beside their point, first those of the chosen one and its
// neighbours; labels without a free place are left out.
function label() {
  labels.replaceChildren(); lines.replaceChildren();
  const close = chosen < 0 ? [] : near(chosen).map(n => n[0]);
  points.forEach((dot, i) => {
    dot.classList.toggle('chosen', i === chosen);
    dot.classList.toggle('near', close.includes(i));
    dot.classList.toggle('dim', !matches(i) && i !== chosen && !close.includes(i));
    dot.style.display = visible(i) ? '' : 'none';
    dot.setAttribute('aria-selected', i === chosen);
    dot.setAttribute('tabindex', i === Math.max(chosen, 0) ? 0 : -1);
  });
  for (const k of close)
    draw('line', lines, { class: 'to', x1: places[chosen][0], y1: places[chosen][1],
      x2: places[k][0], y2: places[k][1] });
  const order = new Set([...(chosen < 0 ? [] : [chosen]), ...close,
    ...[...points.keys()].filter(matches)]);
  const taken = [], high = 17, most = width < 560 ? 14 : 26;
  const overlaps = (a, b) => a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3];
  const family = getComputedStyle(map).fontFamily;
  let placed = 0;
  for (const i of order) {
    if (placed >= 120) break;
    const [x, y] = places[i], text = nameOf(i, i === chosen ? most + 10 : most), gap = radius + 4;
    const wide = 2 + widthOf(text, `${i === chosen ? 650 : 400} 13px ${family}`);
    const spots = [[x + gap, y], [x - gap - wide, y], [x - wide / 2, y - gap - 8],
      [x - wide / 2, y + gap + 8],
      [x + gap - 2, y - 13], [x + gap - 2, y + 13], [x - gap - wide + 2, y - 13],
      [x - gap - wide + 2, y + 13]];
    const boxes = spots.map(([a, b]) => [a, b - high / 2, a + wide, b + high / 2]);
    const inside = b => b[0] >= 2 && b[2] <= width - 2 && b[1] >= 2 && b[3] <= height - 2;
    const open = b => inside(b) && !taken.some(t => overlaps(t, b));
    const free = b => open(b) && !places.some(([px, py], j) =>
      j !== i && visible(j) && overlaps([px - radius, py - radius, px + radius, py + radius], b));
    const box = boxes.find(free) || (i === chosen || close.includes(i) ? boxes.find(open) : null);
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
  const all = [...points.keys()].filter(visible), k = all.indexOf(chosen), { length } = all;
  let next = { Home: all[0], End: all[length - 1], PageDown: all[(k + 1) % length],
    PageUp: all[(k + length - 1) % length] }[event.key];
  if (way) {
    let best = Infinity;
    next = chosen;
    places.forEach(([x, y], i) => {
      const dx = x - places[chosen][0], dy = y - places[chosen][1];
      const along = dx * way[0] + dy * way[1];
      const cost = along + 2 * (Math.abs(dx * way[1]) + Math.abs(dy * way[0]));
      if (i !== chosen && visible(i) && along > 0.5 && cost < best) { best = cost; next = i; }
    });
  }
  if (next === undefined) return;
  event.preventDefault();
  points[next].focus();
  hover(next);
});
svg.addEventListener('focusout', () => { tip.style.display = 'none'; });

/** Return the map for a file, with a legend below it. */
function figure() {
  const legend = draw('g', svg), colours = groups.map(({ name, hue }) => [css(hue), name]);
  const end = groups.length ? drawLegend(legend, colours, width, height + 14) : height;
  svg.setAttribute('viewBox', `0 0 ${width} ${Math.ceil(end)}`);
  try { return standalone(svg); } finally {
    legend.remove();
    svg.setAttribute('viewBox', `0 0 ${width} ${height}`);
  }
}

// --- the chosen point ---------------------------------------------------------------------------

const named = k => short(data.names[k], 60);

function choose(i) {
  chosen = i;
  label();
  const box = $('one'), text = data.texts[data.rows[i]];
  if (box.hidden) { box.hidden = false; place(); label(); }
  box.replaceChildren();
  bdi(add('h3', box), short(data.names[i], 400));
  const tokens = `${data.tokens[i]} ${data.tokens[i] === 1 ? 'token' : 'tokens'}`;
  const given = data.labels[data.rows[i]];
  add('p', box, { className: 'note',
    textContent: [where(i), `${i + 1} of ${count}`, tokens].join(' · ') });
  if (given) bdi(add('p', box, { className: 'note', textContent: 'label ' }), short(given, 80));
  if (data.poolings === 1) bdi(add('p', box, { className: 'note' }), short(text, 200));
  const list = (title, items, called) => {
    if (!items || !items.length) return;
    add('h4', box, { textContent: title });
    const all = add('ol', box);
    for (const [k, c] of items) {
      const item = add('li', all), point = called === named;
      const button = point ? add('button', item, { type: 'button' }) : item;
      bdi(button, called(k));
      if (point) add('small', item, { textContent: where(k) });
      if (point) button.addEventListener('click', () => points[k].focus());
      add('b', item, { textContent: fixed(c, 4) });
    }
  };
  list('nearest here, by cosine', near(i), named);
  list('nearest in the vocabulary', view.words && view.words[i], k => data.vocabulary[k]);
}

// --- neighbours of all --------------------------------------------------------------------------

function neighbours() {
  const cells = (cell, items, called) => {
    cell.replaceChildren();
    for (const [k, c] of items) {
      const item = add('span', cell);
      bdi(item, called(k));
      item.append(' ');
      add('small', item, { textContent: called === named ? data.places[k] : '' });
      item.append(' ');
      add('b', item, { textContent: fixed(c, 3) });
    }
  };
  [...$('near').tBodies[0].rows].forEach((row, i) => {
    cells(row.cells[3], near(i), named);
    cells(row.cells[4], view.words ? view.words[i] : [], k => data.vocabulary[k]);
  });
  const some = view.words?.some(list => list.length);
  $('spoken').textContent = some ? 'nearest in the vocabulary' : '';
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
      `${isolated(nameOf(i))} and ${isolated(nameOf(j))}: ${fixed(c, 6)}`);
  }));
}

function tell(cell) {
  const [i, j] = [cell.parentNode.rowIndex - 1, cell.cellIndex - 1];
  if (i < 0 || j < 0) return;
  const out = $('cosine-at');
  out.replaceChildren();
  bdi(out, nameOf(i, 80)); out.append(' and '); bdi(out, nameOf(j, 80)); out.append(': ');
  add('b', out, { textContent: fixed(cosine(i, j), 6) });
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

// --- search, punctuation and colours ------------------------------------------------------------

/** Show what the filters let through; the chosen point is one of it. */
function refilter() {
  [...$('near').tBodies[0].rows].forEach((row, i) => { row.hidden = !matches(i); });
  const found = [...points.keys()].filter(matches);
  $('found').textContent = filter.find || filter.group >= 0 ? `${found.length} of ${count}` : '';
  if (!matches(chosen)) chosen = found[0] ?? [chosen, ...points.keys()].find(visible);
  choose(chosen);
}

/** Colour the points, and list the groups as buttons that show one alone. */
function recolour() {
  colour($('colour').value);
  map.classList.toggle('coloured', groups.length > 0);
  points.forEach((dot, i) => groups.length
    ? dot.style.setProperty('--hue', `var(--${groups[groupOf[i]].hue})`)
    : dot.style.removeProperty('--hue'));
  $('legend').replaceChildren();
  const buttons = groups.map(({ name, hue, size }, k) => {
    const button = add('button', $('legend'), { type: 'button',
      textContent: `${isolated(short(name, 40))}: ${size}` });
    button.style.setProperty('--hue', `var(--${hue})`);
    button.setAttribute('aria-pressed', true);
    button.addEventListener('click', () => {
      filter.group = filter.group === k ? -1 : k;
      buttons.forEach((one, other) =>
        one.setAttribute('aria-pressed', filter.group < 0 || filter.group === other));
      refilter();
    });
    return button;
  });
}

function listen() {
  const kinds = [...(data.poolings === 1 ? ['text'] : []),
    ...(data.labels.some(label => label !== null) ? ['label'] : [])];
  for (const kind of kinds) add('option', $('colour'), { value: kind, textContent: kind });
  if (kinds.includes('label') || data.texts.length <= HUES) $('colour').value = kinds.at(-1) ?? '';
  $('colour').parentNode.hidden = !kinds.length;
  $('colour').addEventListener('change', () => { recolour(); refilter(); });
  $('plain-of').hidden = !punctuation.size;
  $('plain').addEventListener('change', () => {
    filter.plain = $('plain').checked;
    place(); neighbours(); refilter();
  });
  $('find').addEventListener('input', () => {
    filter.find = $('find').value.trim().toLowerCase();
    refilter();
  });
  $('tools').addEventListener('submit', event => {  // Enter goes from one to the next
    event.preventDefault();
    const found = [...points.keys()].filter(matches);
    if (found.length) choose(found.find(i => i > chosen) ?? found[0]);
  });
  $('tools').hidden = false;
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
listen();
recolour();
show();
choose(0);
