// Draws the figures of `bert-jax inspect attention`. The head after the last one is the rollout.
const { layers, heads, texts, causal, windows } = data;
const form = document.getElementById('controls'), said = document.getElementById('said');
const state = { layer: 0, head: 0, shown: new Set([0]), pointed: null, kept: null };
const SMALL = 64; // pixels of a thumbnail, at most
const ROW = 20; // height of a token, in pixels
const LETTERS = 18; // of a token beside a matrix
const figures = [];

const named = (layer, head) => head < heads ? `layer ${layer + 1}, head ${head + 1}`
  : `rollout to layer ${layer + 1}`;
const colour = head => head < heads ? hue(head) : 'var(--ink)';

/** Return the weights of a head as bytes, row by row; a byte is 255 times the root of a weight. */
function rows(text, layer, head) {
  const size = text.n * text.n, start = (layer * (heads + 1) + head) * size;
  return text.bytes.subarray(start, start + size);
}
const weight = (text, layer, head, i, j) => (rows(text, layer, head)[i * text.n + j] / 255) ** 2;
const isMasked = (layer, head, i, j) => (causal && j > i)
  || (head < heads && windows[layer] && Math.abs(i - j) > windows[layer]);
const isHidden = (text, i, j) => form.plain.checked && (text.special[i] || text.special[j]);

/** Say the weight from one token to another at the top of the page. */
function say(text, i, j) {
  const { layer, head } = state;
  const value = isMasked(layer, head, i, j) ? 'masked'
    : weight(text, layer, head, i, j).toPrecision(2);
  said.replaceChildren(`${named(layer, head)}: `, make('bdi', { textContent: text.tokens[i] }),
    ` ${i + 1} → `, make('bdi', { textContent: text.tokens[j] }), ` ${j + 1}: `,
    make('b', { textContent: value }));
}

// --- lines --------------------------------------------------------------------------------------

function drawTokens(text, side) {
  const list = make('ul', { className: `tokens ${side}` });
  text.tokens.forEach((token, i) => {
    const item = list.appendChild(make('li', { className: text.segments[i] ? 'b' : 'a' }));
    const button = item.appendChild(make('button', { type: 'button' }));
    button.append(make('bdi', { textContent: token }));
    const point = { text, side, i };
    const isSame = other => other && other.text === text && other.side === side && other.i === i;
    const show = () => { state.pointed = point; draw(); };
    const hide = () => { state.pointed = null; draw(); };
    button.addEventListener('pointerenter', show);
    button.addEventListener('pointerleave', hide);
    button.addEventListener('focus', show);
    button.addEventListener('blur', hide);
    button.addEventListener('click', () => {
      state.kept = isSame(state.kept) ? null : point;
      draw();
    });
  });
  return list;
}

function makeLines(box, text) {
  const svg = document.createElementNS(SVG, 'svg'), grid = make('div', { className: 'lines' });
  svg.setAttribute('viewBox', `0 0 100 ${ROW * text.n}`);
  svg.setAttribute('preserveAspectRatio', 'none');
  svg.style.height = `${ROW * text.n}px`;
  grid.append(drawTokens(text, 'from'), svg, drawTokens(text, 'to'));
  box.append(grid);
  return () => {
    const only = state.pointed || state.kept, least = 255 * Math.sqrt(+form.least.value);
    const chosen = only && only.text === text ? only : null;
    svg.replaceChildren();
    for (const head of state.shown) {
      const bytes = rows(text, state.layer, head);
      for (let i = 0; i < text.n; i++) for (let j = 0; j < text.n; j++) {
        const byte = bytes[i * text.n + j];
        if (byte < least || isHidden(text, i, j)) continue;
        if (chosen && chosen.i !== (chosen.side === 'from' ? i : j)) continue;
        const line = svg.appendChild(document.createElementNS(SVG, 'line'));
        const ends = { x1: 0, y1: (i + .5) * ROW, x2: 100, y2: (j + .5) * ROW };
        for (const [name, value] of Object.entries(ends)) line.setAttribute(name, value);
        line.style.stroke = state.shown.size > 1 ? colour(head) : 'var(--c1)';
        line.style.strokeOpacity = byte / 255;
      }
    }
  };
}

function makeHeadButtons() {
  const bar = document.getElementById('heads');
  for (let head = 0; head <= heads; head++) {
    const name = head < heads ? `${head + 1}` : 'rollout';
    const button = bar.appendChild(make('button', { type: 'button', textContent: name }));
    button.style.setProperty('--hue', colour(head));
    button.addEventListener('click', () => {
      if (state.shown.has(head) && state.shown.size > 1) state.shown.delete(head);
      else state.shown.add(head);
      draw();
    });
  }
  return () => [...bar.querySelectorAll('button')].forEach((button, head) =>
    button.setAttribute('aria-pressed', state.shown.has(head)));
}

// --- shaded cells -------------------------------------------------------------------------------

/** Draw weights as pixels of a canvas: shades of a colour, and grey where a token is masked. */
function paint(canvas, text, layer, head, size) {
  const pen = canvas.getContext('2d'), bytes = rows(text, layer, head);
  const image = pen.createImageData(size, size);
  const shade = rgb('c1'), grey = rgb('line'), pixels = image.data;
  for (let i = 0; i < text.n; i++) for (let j = 0; j < text.n; j++) {
    const at = 4 * (Math.floor(i * size / text.n) * size + Math.floor(j * size / text.n));
    const masked = isMasked(layer, head, i, j), colour = masked ? grey : shade;
    const alpha = masked ? 255 : isHidden(text, i, j) ? 0 : bytes[i * text.n + j];
    if (alpha < pixels[at + 3]) continue; // of a block of cells, the darkest shows
    pixels[at] = colour[0];
    pixels[at + 1] = colour[1];
    pixels[at + 2] = colour[2];
    pixels[at + 3] = alpha;
  }
  pen.putImageData(image, 0, 0);
}

function makeMatrix(box, text) {
  const names = text.tokens.map(token =>
    token.length > LETTERS ? `${token.slice(0, LETTERS)}…` : token);
  const canvas = make('canvas', { width: text.n, height: text.n, className: 'cells' });
  const grid = make('div', { className: 'matrix' });
  grid.style.setProperty('--n', text.n);
  for (const side of ['columns', 'rows']) {
    const list = grid.appendChild(make('ol', { className: side }));
    if (text.n <= 48) list.append(...names.map(textContent => make('li', { textContent })));
  }
  grid.append(canvas);
  box.append(grid);
  canvas.addEventListener('pointermove', event => {
    const place = canvas.getBoundingClientRect();
    const cell = at => Math.min(text.n - 1, Math.max(0, Math.floor(at * text.n)));
    say(text, cell((event.clientY - place.top) / place.height),
      cell((event.clientX - place.left) / place.width));
  });
  return () => paint(canvas, text, state.layer, state.head, text.n);
}

function makeThumbnails(box, text) {
  const size = Math.min(SMALL, text.n), grid = make('div', { className: 'thumbnails' });
  grid.style.setProperty('--heads', heads + 1);
  box.append(grid);
  const all = [];
  for (let layer = 0; layer < layers; layer++) for (let head = 0; head <= heads; head++) {
    const button = grid.appendChild(make('button', { type: 'button', title: named(layer, head) }));
    const canvas = button.appendChild(make('canvas', { width: size, height: size }));
    button.addEventListener('click', () => choose(layer, head));
    all.push({ layer, head, button, canvas });
  }
  return () => all.forEach(({ layer, head, button, canvas }) => {
    const look = `${form.plain.checked} ${rgb('c1')}`;
    if (canvas.dataset.look !== look) paint(canvas, text, layer, head, size);
    canvas.dataset.look = look;
    button.setAttribute('aria-pressed', layer === state.layer && head === state.head);
  });
}

// --- the page -----------------------------------------------------------------------------------

function draw() { figures.forEach(figure => figure()); }

function choose(layer, head) {
  if (head !== state.head) state.shown = new Set([head]);
  Object.assign(state, { layer, head });
  form.layer.value = layer;
  form.head.value = head;
  said.textContent = named(layer, head);
  draw();
}

async function start() {
  const makers = { lines: makeLines, matrix: makeMatrix, thumbnails: makeThumbnails };
  for (const text of texts) {
    text.n = text.tokens.length;
    text.bytes = await unpack(text.weights);
  }
  figures.push(makeHeadButtons());
  for (const box of document.querySelectorAll('[data-figure]')) {
    const text = texts[box.dataset.text];
    if (texts.length > 1) box.append(make('h3', { textContent: text.text.join(' | ') }));
    figures.push(makers[box.dataset.figure](box, text));
  }
  form.addEventListener('submit', event => event.preventDefault());
  form.addEventListener('change', () => choose(+form.layer.value, +form.head.value));
  form.least.addEventListener('change', draw); // it stands outside the form
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw);
  choose(0, 0);
  document.documentElement.dataset.ready = '1';
}
start();
