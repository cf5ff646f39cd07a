// Draws the figures of `bert-jax inspect attention`. The head after the last one is the rollout.
const { layers, heads, texts, causal, windows } = data;
const form = byId('controls'), said = byId('said');
const state = { layer: 0, head: 0, shown: new Set([0]), only: null, kept: null };
const ROW = 20; // height of a token, in pixels
const redraws = { lines: [], matrix: [], thumbnails: [] };
const redraw = (...kinds) => kinds.forEach(kind => redraws[kind].forEach(draw => draw()));

const nameOf = (layer, head) => head < heads ? `layer ${layer + 1}, head ${head + 1}`
  : `rollout to layer ${layer + 1}`;
const colourOf = head => head < heads ? hue(head) : 'var(--ink)';

/** Return the weights of a head as bytes, row by row; a byte is 255 times the root of a weight. */
function bytesOf(text, layer, head) {
  const size = text.n * text.n, start = (layer * (heads + 1) + head) * size;
  return text.bytes.subarray(start, start + size);
}
const isMasked = (layer, head, i, j) => (causal && j > i)
  || (head < heads && windows[layer] && Math.abs(i - j) > windows[layer]);
const isHidden = (text, i, j) => form.plain.checked && (text.special[i] || text.special[j]);

/** Say the weight from one token to another at the top of the page. */
function sayWeight(text, i, j) {
  const { layer, head } = state, byte = bytesOf(text, layer, head)[i * text.n + j];
  const value = isMasked(layer, head, i, j) ? 'masked' : ((byte / 255) ** 2).toPrecision(2);
  said.textContent = `${nameOf(layer, head)}: \u2068${text.tokens[i]}\u2069 ${i + 1} → `
    + `\u2068${text.tokens[j]}\u2069 ${j + 1}: ${value}`;
}

// --- lines --------------------------------------------------------------------------------------

/** List the tokens of one side; the one that is pointed at shows its lines only, a click keeps it. */
function makeTokens(text, side) {
  const list = make('ul', { className: `tokens ${side}` });
  text.tokens.forEach((token, i) => {
    const button = list.appendChild(make('li', { className: text.segments[i] ? 'b' : 'a' }))
      .appendChild(make('button', { type: 'button' }));
    button.append(make('bdi', { textContent: token }));
    const point = { text, side, i };
    const show = only => () => { state.only = only; redraw('lines'); };
    for (const kind of ['pointerenter', 'focus']) button.addEventListener(kind, show(point));
    for (const kind of ['pointerleave', 'blur']) button.addEventListener(kind, show(null));
    button.addEventListener('click', () => {
      const { kept } = state;
      const same = kept && kept.text === text && kept.side === side && kept.i === i;
      state.kept = same ? null : point;
      redraw('lines');
    });
  });
  return list;
}

function makeLines(box, text) {
  const svg = document.createElementNS(SVG, 'svg'), grid = make('div', { className: 'lines' });
  svg.setAttribute('viewBox', `0 0 100 ${ROW * text.n}`);
  svg.setAttribute('preserveAspectRatio', 'none');
  svg.style.height = `${ROW * text.n}px`;
  grid.append(makeTokens(text, 'from'), svg, makeTokens(text, 'to'));
  box.append(grid);
  return () => {
    const only = state.only || state.kept, least = 255 * Math.sqrt(+form.least.value);
    const lines = [];
    for (const head of state.shown) bytesOf(text, state.layer, head).forEach((byte, at) => {
      const i = Math.floor(at / text.n), j = at % text.n;
      if (byte < least || isHidden(text, i, j)) return;
      if (only && only.text === text && only.i !== (only.side === 'from' ? i : j)) return;
      const line = document.createElementNS(SVG, 'line');
      const ends = { x1: 0, y1: (i + .5) * ROW, x2: 100, y2: (j + .5) * ROW };
      for (const [name, value] of Object.entries(ends)) line.setAttribute(name, value);
      line.style.stroke = state.shown.size > 1 ? colourOf(head) : 'var(--c1)';
      line.style.strokeOpacity = byte / 255;
      lines.push(line);
    });
    svg.replaceChildren(...lines);
  };
}

/** Make a button for each head, which adds its lines or takes them away. */
function makeHeadButtons() {
  const buttons = Array.from({ length: heads + 1 }, (_, head) => {
    const textContent = head < heads ? `${head + 1}` : 'rollout';
    const button = byId('heads').appendChild(make('button', { type: 'button', textContent }));
    button.style.setProperty('--hue', colourOf(head));
    button.addEventListener('click', () => {
      if (state.shown.has(head) && state.shown.size > 1) state.shown.delete(head);
      else state.shown.add(head);
      redraw('lines');
    });
    return button;
  });
  return () => buttons.forEach((button, head) =>
    button.setAttribute('aria-pressed', state.shown.has(head)));
}

// --- shaded cells -------------------------------------------------------------------------------

/** Draw weights as pixels of a canvas: shades of a colour, and grey where a token is masked. */
function paint(canvas, text, layer, head) {
  const pen = canvas.getContext('2d'), image = pen.createImageData(text.n, text.n);
  const shade = rgb('c1'), grey = rgb('line');
  bytesOf(text, layer, head).forEach((byte, at) => {
    const i = Math.floor(at / text.n), j = at % text.n, masked = isMasked(layer, head, i, j);
    image.data.set(masked ? grey : shade, 4 * at);
    image.data[4 * at + 3] = masked ? 255 : isHidden(text, i, j) ? 0 : byte;
  });
  pen.putImageData(image, 0, 0);
}

function makeMatrix(box, text) {
  const canvas = make('canvas', { width: text.n, height: text.n, className: 'cells' });
  const grid = make('div', { className: 'matrix' });
  grid.style.setProperty('--n', text.n);
  for (const side of ['columns', 'rows']) {
    const list = grid.appendChild(make('ol', { className: side }));
    if (text.n <= 48) list.append(...text.tokens.map(textContent => make('li', { textContent })));
  }
  grid.append(canvas);
  box.append(grid);
  canvas.addEventListener('pointermove', event => {
    const place = canvas.getBoundingClientRect();
    const cell = share => Math.min(text.n - 1, Math.max(0, Math.floor(share * text.n)));
    sayWeight(text, cell((event.clientY - place.top) / place.height),
      cell((event.clientX - place.left) / place.width));
  });
  return () => paint(canvas, text, state.layer, state.head);
}

function makeThumbnails(box, text) {
  const grid = box.appendChild(make('div', { className: 'thumbnails' })), all = [];
  grid.style.setProperty('--heads', heads + 1);
  for (let layer = 0; layer < layers; layer++) for (let head = 0; head <= heads; head++) {
    const button = grid.appendChild(make('button', { type: 'button', title: nameOf(layer, head) }));
    const canvas = button.appendChild(make('canvas', { width: text.n, height: text.n }));
    button.addEventListener('click', () => choose(layer, head));
    all.push(() => paint(canvas, text, layer, head));
  }
  return () => all.forEach(draw => draw());
}

// --- the page -----------------------------------------------------------------------------------

function choose(layer, head) {
  if (head !== state.head) state.shown = new Set([head]);
  Object.assign(state, { layer, head });
  form.layer.value = layer;
  form.head.value = head;
  said.textContent = nameOf(layer, head);
  document.querySelectorAll('.thumbnails button').forEach((button, at) => button.setAttribute(
    'aria-pressed', at % (layers * (heads + 1)) === layer * (heads + 1) + head));
  redraw('lines', 'matrix');
}

async function start() {
  const makers = { lines: makeLines, matrix: makeMatrix, thumbnails: makeThumbnails };
  for (const text of texts) {
    text.n = text.tokens.length;
    text.bytes = await unpack(text.weights);
  }
  redraws.lines.push(makeHeadButtons());
  for (const box of document.querySelectorAll('[data-figure]')) {
    const text = texts[box.dataset.text], kind = box.dataset.figure;
    if (texts.length > 1) box.append(make('h3', { textContent: text.text.join(' | ') }));
    redraws[kind].push(makers[kind](box, text));
  }
  const paintAll = () => redraw('lines', 'matrix', 'thumbnails');
  form.addEventListener('submit', event => event.preventDefault());
  for (const select of [form.layer, form.head])
    select.addEventListener('change', () => choose(+form.layer.value, +form.head.value));
  form.plain.addEventListener('change', paintAll);
  form.least.addEventListener('change', () => redraw('lines'));
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', paintAll);
  choose(0, 0);
  redraw('thumbnails');
  document.documentElement.dataset.ready = '1';
}
start();
