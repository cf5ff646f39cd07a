// Heads of one layer as lines between the tokens on the left and on the right.

const LEAST = [0, .005, .01, .02, .05, .1, .2, .5];  // thresholds to choose from
const FAINT = .002;  // lines of less weight cannot be seen, and are never drawn
const colourOf = head => css(head < heads ? hue(head) : 'ink');

/** Return the weights to draw, weakest first; of how many; and their share of the sum of all. */
function strongest(text) {
  const lines = [], { n } = text, least = Math.max(FAINT, state.least) * scale;
  let count = 0, whole = 0, drawn = 0;
  for (const head of state.shown) {
    const weights = text.head(state.layer, head);
    for (let i = 0; i < n; i++) {
      const row = [];
      for (let j = 0; j < n; j++) {
        const w = weights[i * n + j];
        if (!w || !text.counts(i, j)) continue;
        count++;
        whole += w;
        if (w >= least) row.push({ w: w / scale, i, j, head });
      }
      if (state.most && row.length > state.most)
        row.sort((a, b) => b.w - a.w).length = state.most;
      for (const one of row) drawn += one.w;
      lines.push(...row);
    }
  }
  return { lines: lines.sort((a, b) => a.w - b.w), count, share: drawn * scale / (whole || 1) };
}

/** Return the function from a line to its colour: of its head, or of a single head's segments. */
function colourIn(text) {
  const several = state.shown.length > 1, segments = [css('c1'), css('c2')];
  const ofHead = new Map(state.shown.map(head => [head, colourOf(head)]));
  return ({ i, head }) => several ? ofHead.get(head) : segments[text.segments[i]];
}

/** Name what the colours stand for: heads, or the segments of one head. */
function legend(text) {
  if (state.shown.length > 1) return state.shown.map(head =>
    [colourOf(head), head < heads ? `head ${head + 1}` : 'rollout']);
  return text.segments.includes(1) ? [[css('c1'), 'from A'], [css('c2'), 'from B']] : [];
}

const filters = () => [
  ...(state.most ? [`the ${state.most} strongest of each token`] : []),
  ...(state.least ? [`weights from ${state.least}`] : []),
].join(', ');

/** Draw the lines with tokens and legend as an SVG for a file. */
function linesFigure(text, found, middle, high) {
  const label = i => isolated(text.tokens[i].length > 30 ? `${text.tokens[i].slice(0, 29)}…`
    : text.tokens[i]);
  const font = `${high * .62}px system-ui, sans-serif`;
  const side = 12 + Math.max(...text.tokens.map((_, i) => widthOf(label(i), font)));
  const width = Math.round(2 * side + middle), svg = make('div').appendChild(
    document.createElementNS('http://www.w3.org/2000/svg', 'svg'));
  const write = (x, y, content, attributes) => {
    draw('text', svg, { x, y: y + high * .22, 'font-size': high * .62, fill: css('ink'),
      ...attributes }).textContent = content;
  };
  const colour = colourIn(text);
  for (const line of found) draw('line', svg, { x1: side, x2: side + middle,
    y1: (line.i + .5) * high, y2: (line.j + .5) * high, stroke: colour(line),
    'stroke-width': 1.4, 'stroke-opacity': strength(line.w).toFixed(3) });
  text.tokens.forEach((_, i) => {
    write(side - 6, (i + .5) * high, label(i), { 'text-anchor': 'end' });
    write(side + middle + 6, (i + .5) * high, label(i));
  });
  const head = state.shown.length > 1 ? `layer ${state.layer + 1}` : named(state.layer, state.head);
  const title = [head, filters()].filter(Boolean).join(': ');
  const wide = Math.max(width, Math.ceil(widthOf(title, font)) + 16);
  const end = drawLegend(svg, [...legend(text), [null, title]], wide, (text.n + 1) * high,
    high * .62);
  svg.setAttribute('viewBox', `0 0 ${wide} ${Math.ceil(end)}`);
  return standalone(svg);
}

/** Build the list of tokens of one side, which point at one token and keep it. */
function tokenList(text, side) {
  const items = text.tokens.map((_, i) => {
    const item = make('li', { tabIndex: i ? -1 : 0 });
    item.classList.add(text.segments[i] ? 'b' : 'a');
    item.classList.toggle('special', Boolean(text.special[i]));
    item.append(token(text, i));
    return item;
  });
  const element = make('ul', { className: `tokens ${side}` });
  element.setAttribute('aria-label', side === 'from' ? 'query tokens' : 'key tokens');
  element.append(...items);
  const only = event => items.indexOf(event.target.closest('li'));
  const isolate = event => only(event) >= 0 && point({ side, index: only(event) });
  const release = () => point(state.kept);
  element.addEventListener('pointerover', isolate);
  element.addEventListener('pointerleave', release);
  element.addEventListener('focusin', isolate);
  element.addEventListener('focusout', release);
  const keep = index => {
    const same = state.kept && state.kept.side === side && state.kept.index === index;
    change({ kept: same ? null : { side, index }, [side]: index });
  };
  element.addEventListener('click', event => only(event) >= 0 && keep(only(event)));
  element.addEventListener('keydown', event => {
    const index = only(event), last = items.length - 1;
    const next = { ArrowUp: index - 1, ArrowDown: index + 1, Home: 0, End: last }[event.key];
    if (event.key === 'Enter' || event.key === ' ') keep(index);
    else if (event.key === 'Escape') change({ kept: null });
    else if (next === undefined) return;
    else {
      items[index].tabIndex = -1;
      items[clamp(next, 0, last)].tabIndex = 0;
      items[clamp(next, 0, last)].focus();
    }
    event.preventDefault();
  });
  return { element, items };
}

/** Draw tokens left and right with lines between. */
function lines(box, text) {
  const two = text.segments.includes(1);
  if (two) box.appendChild(make('p', { className: 'key' })).append(
    'Tokens of ', make('b', { textContent: 'A' }), make('b', { textContent: 'B', className: 'b' }));
  const grid = box.appendChild(make('div', { className: two ? 'lines' : 'lines single' }));
  const high = text.n > 128 ? 16 : 22;
  grid.style.setProperty('--row', `${high}px`);
  const from = tokenList(text, 'from'), to = tokenList(text, 'to');
  const canvas = make('canvas'), middle = make('div');
  canvas.setAttribute('aria-hidden', 'true');
  middle.append(canvas);
  grid.append(from.element, middle, to.element);
  const told = box.appendChild(make('p', { className: 'note kept' }));
  const only = () => state.only && state.only.index < text.n ? state.only : null;
  const visible = () => found.lines.filter(({ i, j }) =>
    !only() || only().index === (only().side === 'from' ? i : j));
  box.append(saving(() => fileName('lines', text),
    () => linesFigure(text, visible(), clamp(middle.clientWidth, 160, 700), high)));
  const weigh = (items, weight) => items.forEach((item, i) => {
    const shownWeight = weight && weight(i);
    item.style.setProperty('--w', shownWeight ? strength(shownWeight.w) : 0);
    item.querySelector('i')?.remove();
    if (shownWeight) item.append(make('i', { textContent: shownWeight.exact }));
    if (shownWeight && item.parentNode.className.includes('from')) item.prepend(item.lastChild);
  });
  let found = { lines: [], count: 0, share: 0 }, key = '';
  return { draw() {
    const { layer, head, shown, between, plain, most, least } = state;
    const asked = JSON.stringify([layer, shown, between, plain, most, least]);
    if (asked !== key) found = strongest(text);
    key = asked;
    const weight = (i, j) => text.counts(i, j)
      ? { w: text.weight(layer, head, i, j), exact: text.exact(layer, head, i, j) } : null;
    const one = only();
    weigh(from.items, one?.side === 'to' && (i => weight(i, one.index)));
    weigh(to.items, one?.side === 'from' && (j => weight(one.index, j)));
    for (const [side, { items }] of Object.entries({ from, to })) items.forEach((item, i) =>
      item.classList.toggle('chosen', one?.side === side && one.index === i));
    const width = middle.clientWidth, pen = sized(canvas, width, text.n * high);
    const colour = colourIn(text);
    pen.lineWidth = 1.4;
    for (const line of visible()) {
      pen.globalAlpha = strength(line.w);
      pen.strokeStyle = colour(line);
      pen.beginPath();
      pen.moveTo(0, (line.i + .5) * high);
      pen.lineTo(width, (line.j + .5) * high);
      pen.stroke();
    }
    const { length } = found.lines;
    told.textContent = length
      ? `${length.toLocaleString('en')} of ${found.count.toLocaleString('en')} weights are drawn: `
        + `${(100 * found.share).toFixed(1)} % of their sum.`
      : 'No weight is so large: lower the threshold.';
  } };
}

function sized(canvas, width, height) {
  const fine = Math.min(window.devicePixelRatio || 1, 16000 / Math.max(width, height, 1));
  canvas.width = Math.max(1, Math.round(width * fine));
  canvas.height = Math.max(1, Math.round(height * fine));
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const pen = canvas.getContext('2d');
  pen.scale(fine, fine);
  return pen;
}

/** Show the lines of one token alone, or of all, for every text. */
function point(only) {
  state.only = only;
  views.filter(view => view.name === 'lines').forEach(view => view.draw());
}

/** Build the buttons that choose the heads drawn, which are their legend. */
function headButtons() {
  const box = document.getElementById('heads');
  const button = (textContent, action, className = '') => {
    const made = make('button', { type: 'button', textContent, className });
    made.addEventListener('click', () => { action(); sayHead(null, state.layer, state.head); });
    return box.appendChild(made);
  };
  const toggle = head => {
    const { shown } = state, on = !shown.includes(head);
    const next = on ? [...shown, head].sort((a, b) => a - b) : shown.filter(h => h !== head);
    if (next.length) change({ shown: next,
      head: on ? head : next.includes(state.head) ? state.head : next[0] });
  };
  const chips = Array.from({ length: heads + 1 }, (_, head) =>
    button(head < heads ? `${head + 1}` : 'rollout', () => toggle(head)));
  const every = Array.from({ length: heads }, (_, head) => head);
  const all = button('all', () => change(state.shown.length > 1 ? { shown: [state.head] }
    : { shown: every, head: Math.min(state.head, heads - 1) }), 'plain');
  return () => {
    const several = state.shown.length > 1;
    chips.forEach((chip, head) => {
      chip.setAttribute('aria-pressed', state.shown.includes(head));
      chip.style.setProperty('--hue', several ? colourOf(head) : 'transparent');
    });
    all.textContent = several ? 'only one' : 'all';
  };
}
