'use strict';
// Draws the page of `bert-jax inspect attention`. All figures share one state: a layer, a head (the
// last is the rollout), which tokens count, and a weight, from one token to another. The address
// holds the state: #layer=3&head=2&from=1&to=4.
(async () => {
  const byId = id => document.getElementById(id);
  const make = (tag, settings = {}) => Object.assign(document.createElement(tag), settings);
  const data = JSON.parse(byId('data').textContent);
  const { layers, heads } = data, scale = 10 ** data.digits;
  const clamp = (x, low, high) => Math.max(low, Math.min(high, x));

  // --- weights ----------------------------------------------------------------------------------

  const bytes = text => Uint8Array.from(atob(text), c => c.charCodeAt(0));
  const inflated = async text => new Uint8Array(await new Response(
    new Blob([bytes(text)]).stream().pipeThrough(new DecompressionStream('deflate')))
      .arrayBuffer());

  class Text {
    constructor(stored) {
      Object.assign(this, stored);
      this.n = stored.tokens.length;
      this.held = new Map();
    }

    async open() {
      for (const layer of this.layers) {
        layer.lengths = await inflated(layer.lengths);
        const packed = bytes(layer.bits);
        layer.bits = new Uint8Array(packed.length + 4);
        layer.bits.set(packed);
      }
    }

    /** Return the weights of a head in units of 1 / scale, row by row. */
    head(layer, head) {
      const key = layer * (heads + 1) + head;
      if (this.held.has(key)) return this.held.get(key);
      const { lengths, bits, starts } = this.layers[layer], size = this.n * this.n;
      const found = new Int32Array(size);
      for (let k = 0, at = starts[head], first = head * size; k < size; k++) {
        const length = lengths[first + k];
        if (!length) continue;
        const below = length - 1, byte = at >> 3;
        const four = bits[byte] << 24 | bits[byte + 1] << 16 | bits[byte + 2] << 8 | bits[byte + 3];
        const word = four << (at & 7);
        found[k] = 1 << below | (below ? word >>> (32 - below) : 0);
        at += below;
      }
      if (this.held.size > 2 * (layers + heads)) this.held.delete(this.held.keys().next().value);
      this.held.set(key, found);
      return found;
    }

    weight(layer, head, from, to) { return this.head(layer, head)[from * this.n + to] / scale; }

    /** Return whether the attention mask lets a token attend to another. */
    sees(layer, head, from, to) {
      const window = head < heads ? data.windows[layer] : 0;
      return !(data.causal && to > from) && !(window && Math.abs(to - from) > window);
    }

    /** Return whether the filters let a weight be shown. */
    counts(from, to) {
      if (state.plain && (this.special[from] || this.special[to])) return false;
      return state.between === 'all'
        || state.between === `${this.segments[from]}${this.segments[to]}`;
    }

    /** Format a weight, or say why there is none. */
    exact(layer, head, from, to) {
      if (!this.sees(layer, head, from, to)) return 'masked';
      const w = this.weight(layer, head, from, to);
      if (w || !this.keep || !from) return w.toFixed(data.digits);
      const row = this.head(layer, head).subarray(from * this.n, (from + 1) * this.n);
      const least = row.reduce((a, b) => b && b < a ? b : a, scale);
      return `left out, at most ${(least / scale).toFixed(data.digits)}`;
    }
  }

  // --- state ------------------------------------------------------------------------------------

  const state = { layer: 0, head: 0, between: 'all', plain: false, from: 0, to: 0, only: null,
    kept: null };
  const form = byId('controls'), said = byId('said');

  function fromAddress() {
    const given = new URLSearchParams(location.hash.slice(1));
    const number = (name, count, otherwise = 0) => {
      const x = parseInt(given.get(name), 10);
      return x >= 1 ? Math.min(x, count) - 1 : otherwise;
    };
    const longest = Math.max(...texts.map(text => text.n));
    state.layer = number('layer', layers);
    state.head = given.get('head') === 'rollout' ? heads : number('head', heads);
    state.from = number('from', longest, data.causal ? longest - 1 : 0);
    state.to = number('to', longest);
    const segments = (given.get('between') || '').replace('ab', '01').replace('ba', '10')
      .replace('aa', '00');
    const wanted = segments.replace('bb', '11');
    state.between = [...form.between.options].some(o => o.value === wanted) ? wanted : 'all';
    state.plain = given.get('plain') === '1';
  }

  function toAddress() {
    const parts = [`layer=${state.layer + 1}`,
      `head=${state.head < heads ? state.head + 1 : 'rollout'}`];
    parts.push(`from=${state.from + 1}`, `to=${state.to + 1}`);
    if (state.between !== 'all')
      parts.push(`between=${[...state.between].map(k => 'ab'[k]).join('')}`);
    if (state.plain) parts.push('plain=1');
    history.replaceState(null, '', `#${parts.join('&')}`);
  }

  const named = (layer, head) => head < heads ? `layer ${layer + 1}, head ${head + 1}`
    : `rollout to layer ${layer + 1}`;
  const say = (...parts) => said.replaceChildren(...parts);
  const token = (text, i) => make('bdi', { textContent: text.tokens[i] });
  const of = text => texts.length > 1 ? `text ${texts.indexOf(text) + 1}, ` : '';

  function sayWeight(text, layer, head, from, to) {
    const exact = make('b', { textContent: text.exact(layer, head, from, to) });
    say(`${of(text)}${named(layer, head)}: `, token(text, from), ` ${from + 1} → `,
      token(text, to), ` ${to + 1}: `, exact);
  }

  function sayHead(text, layer, head) {
    const rest = texts.flatMap((one, i) => {
      if (head === heads || (text && text !== one)) return [];
      const cell = name => document.querySelectorAll(`table[data-name=${name}]`)[i]
        .querySelector(`[data-layer="${layer}"][data-head="${head}"]`).textContent;
      return `${of(one)}entropy ${cell('entropy')} nats, mean distance ${cell('distance')} tokens`;
    });
    say([named(layer, head), ...(rest.length ? [rest.join('; ')] : [])].join(': '));
  }

  /** Change the state, redraw, and write the state into the address. */
  function change(next, remember = true) {
    Object.assign(state, next);
    for (const name of ['layer', 'head', 'between']) form[name].value = state[name];
    form.plain.checked = state.plain;
    const shown = { layer: state.layer + 1, head: state.head + 1 };
    Object.assign(document.documentElement.dataset, shown);
    for (const cell of document.querySelectorAll('.heads td'))
      cell.classList.toggle('chosen', +cell.dataset.layer === state.layer
        && +cell.dataset.head === state.head);
    views.forEach(view => view.draw());
    if (remember) toAddress();
  }

  // --- drawing ----------------------------------------------------------------------------------

  let colours = {};
  function readColours() {
    const style = getComputedStyle(document.documentElement);
    for (const name of ['ink', 'soft', 'line', 'card', 'c1', 'c2']) {
      const value = style.getPropertyValue(`--${name}`).trim().slice(1);
      const full = value.length === 3 ? [...value].map(c => c + c).join('') : value;
      colours[name] = [0, 2, 4].map(i => parseInt(full.slice(i, i + 2), 16));
    }
  }
  const css = name => `rgb(${colours[name].join()})`;
  const strength = w => Math.sqrt(w);  // of a line or a cell, 0 to 1
  const FONT = '12px system-ui, sans-serif', ROOM = 90;  // of labels

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

  /** Labelled grid of cells with a frame that the pointer and the arrow keys move. */
  class Heat {
    constructor(box, settings) {
      Object.assign(this, { most: 30, square: true, ...settings });
      this.scroll = box.appendChild(make('div', { className: 'scroll' }));
      this.canvas = this.scroll.appendChild(make('canvas', { className: 'heat', tabIndex: 0 }));
      this.canvas.setAttribute('role', 'application');
      this.canvas.setAttribute('aria-label', `${this.label}; arrow keys move`);
      this.canvas.addEventListener('pointermove', event => this.hover(this.cell(event)));
      this.canvas.addEventListener('click', event => this.choose(this.cell(event)));
      this.canvas.addEventListener('focus', () => this.hover(this.at()));
      this.canvas.addEventListener('keydown', event => {
        const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1],
          ArrowRight: [0, 1] }[event.key];
        if (!step || event.ctrlKey || event.metaKey || event.altKey) return;
        event.preventDefault();
        const [r, c] = this.at();
        this.choose(this.inside(r + step[0], c + step[1]));
      });
    }

    cell(event) {
      const box = this.canvas.getBoundingClientRect();
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

    draw() {
      const rows = this.rows.length, columns = this.columns.length, room = this.scroll.clientWidth;
      const widest = (names, font) => {
        const pen = this.canvas.getContext('2d');
        pen.font = font;
        return Math.min(ROOM, 8 + Math.max(...names.map(name => pen.measureText(name).width)));
      };
      const wide = left => clamp(Math.floor((room - left) / columns), 3, this.most);
      this.left = widest(this.rows, FONT);
      this.wide = wide(this.left);
      this.high = this.square ? this.wide : 16;
      if (this.high < 12) {  // too low for labels
        this.left = 2;
        this.wide = wide(2);
        this.high = this.square ? this.wide : 16;
      }
      const labelled = this.wide >= 12, longest = widest(this.columns, FONT);
      const flat = longest <= this.wide + 4;
      this.top = !labelled ? 2 : flat ? 18 : longest;
      const width = this.left + columns * this.wide + 2, height = this.top + rows * this.high + 2;
      const pen = sized(this.canvas, width, height);
      pen.font = FONT;
      pen.fillStyle = css('soft');
      pen.textBaseline = 'middle';
      pen.textAlign = 'right';
      if (this.left > 2) this.rows.forEach((name, r) =>
        pen.fillText(name, this.left - 5, this.top + (r + .5) * this.high, this.left - 6));
      pen.textAlign = flat ? 'center' : 'left';
      if (labelled) this.columns.forEach((name, c) => {
        pen.save();
        pen.translate(this.left + (c + .5) * this.wide, this.top - (flat ? 9 : 4));
        if (!flat) pen.rotate(-Math.PI / 2);
        pen.fillText(name, 0, 0, flat ? this.wide : this.top - 6);
        pen.restore();
      });
      pen.imageSmoothingEnabled = false;
      pen.drawImage(this.image(), this.left, this.top, columns * this.wide, rows * this.high);
      pen.lineWidth = 1;
      pen.strokeStyle = css('line');
      pen.strokeRect(this.left - .5, this.top - .5, columns * this.wide + 1, rows * this.high + 1);
      const [r, c] = this.at();
      pen.lineWidth = 2;
      pen.strokeStyle = css('c2');
      pen.strokeRect(this.left + c * this.wide, this.top + r * this.high, this.wide, this.high);
    }
  }

  const rowsOf = count => Array.from({ length: count }, (_, i) => `${i + 1}`);
  const shown = (text, layer, head, i, j) => !text.sees(layer, head, i, j) ? null
    : text.counts(i, j) ? text.weight(layer, head, i, j) : 0;

  function matrix(box, text) {
    return new Heat(box, {
      label: 'weights of the chosen head', most: clamp(Math.floor(960 / text.n), 3, 30),
      rows: text.tokens, columns: text.tokens,
      image: () => picture(text.n, text.n, (i, j) => shown(text, state.layer, state.head, i, j)),
      at: () => [Math.min(state.from, text.n - 1), Math.min(state.to, text.n - 1)],
      pick: (from, to) => change({ from, to }),
      tell: (from, to) => sayWeight(text, state.layer, state.head, from, to),
    });
  }

  function row(box, text) {
    const from = () => Math.min(state.from, text.n - 1), to = () => Math.min(state.to, text.n - 1);
    const part = (names, place, current, move) => {
      const label = box.appendChild(make('p', { className: 'label' }));
      const heat = new Heat(box, {
        label: 'weights of one token', rows: names, columns: text.tokens, square: false,
        image: () => picture(names.length, text.n, (k, j) => shown(text, ...place(k), from(), j)),
        at: () => [current(), to()],
        pick: (k, j) => change({ ...move(k), to: j }),
        tell: (k, j) => sayWeight(text, ...place(k), from(), j),
      });
      return { label, draw: () => heat.draw() };
    };
    const across = part([...rowsOf(heads), 'rollout'], k => [state.layer, k], () => state.head,
      k => ({ head: k }));
    const along = part(rowsOf(layers), k => [k, state.head], () => state.layer,
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

  // pixels of a thumbnail at most; with more tokens a pixel is the largest weight of several
  const SMALL = 48;

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
    let scheme = null, images = [];
    const heat = new Heat(box, {
      label: 'thumbnails of every layer and head', most: 72,
      rows: rowsOf(layers), columns: [...rowsOf(heads), 'rollout'],
      image: () => {
        if (scheme !== css('card')) images = all.map(({ size, found }) =>
          picture(size, size, (r, c) => found[r * size + c] / scale));
        scheme = css('card');
        const cell = Math.max(heat.wide, SMALL), gap = 3;
        const sheet = make('canvas', { width: (heads + 1) * cell, height: layers * cell }),
          pen = sheet.getContext('2d');
        pen.fillStyle = css('line');
        pen.fillRect(0, 0, sheet.width, sheet.height);
        pen.imageSmoothingEnabled = false;
        images.forEach((image, k) => pen.drawImage(image, k % (heads + 1) * cell + gap / 2,
          Math.floor(k / (heads + 1)) * cell + gap / 2, cell - gap, cell - gap));
        return sheet;
      },
      at: () => [state.layer, state.head],
      pick: (layer, head) => change({ layer, head }),
      tell: (layer, head) => sayHead(text, layer, head),
    });
    return heat;
  }

  /** Draw tokens left and right with lines between. */
  function lines(box, text) {
    const two = text.segments.includes(1);
    if (two) box.appendChild(make('p', { className: 'key' })).append(
      make('b', { textContent: 'A' }), make('b', { textContent: 'B', className: 'b' }));
    const grid = box.appendChild(make('div', { className: 'lines' }));
    const high = text.n > 128 ? 16 : 22;
    grid.style.setProperty('--row', `${high}px`);
    const lists = {};
    const list = side => {
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
      lists[side] = items;
      return element;
    };
    const canvas = make('canvas');
    canvas.setAttribute('aria-hidden', 'true');
    const middle = make('div');
    middle.append(canvas);
    grid.append(list('from'), middle, list('to'));
    const weigh = (items, weight) => items.forEach((item, i) => {
      const shownWeight = weight && weight(i);
      item.style.setProperty('--w', shownWeight ? strength(shownWeight.w) : 0);
      item.querySelector('i')?.remove();
      if (shownWeight) item.append(make('i', { textContent: shownWeight.exact }));
      if (shownWeight && item.parentNode.className.includes('from')) item.prepend(item.lastChild);
    });
    return { draw() {
      const only = state.only && state.only.index < text.n ? state.only : null;
      const of = (i, j) => text.counts(i, j)
        ? { w: text.weight(state.layer, state.head, i, j),
          exact: text.exact(state.layer, state.head, i, j) } : null;
      weigh(lists.from, only?.side === 'to' && (i => of(i, only.index)));
      weigh(lists.to, only?.side === 'from' && (j => of(only.index, j)));
      for (const side of ['from', 'to']) lists[side].forEach((item, i) =>
        item.classList.toggle('chosen', only?.side === side && only.index === i));
      const width = middle.clientWidth, pen = sized(canvas, width, text.n * high);
      const weights = text.head(state.layer, state.head);
      pen.lineWidth = 1.4;
      for (let i = 0, k = 0; i < text.n; i++) for (let j = 0; j < text.n; j++, k++) {
        if (weights[k] < .002 * scale || !text.counts(i, j)) continue;
        if (only && only.index !== (only.side === 'from' ? i : j)) continue;
        pen.globalAlpha = strength(weights[k] / scale);
        pen.strokeStyle = css(text.segments[i] ? 'c2' : 'c1');
        pen.beginPath();
        pen.moveTo(0, (i + .5) * high);
        pen.lineTo(width, (j + .5) * high);
        pen.stroke();
      }
    } };
  }

  /** Show the lines of one token alone, or of all, for every text. */
  function point(only) {
    state.only = only;
    views.filter(view => view.name === 'lines').forEach(view => view.draw());
  }

  // --- putting it together ----------------------------------------------------------------------

  const texts = data.texts.map(stored => new Text(stored)), views = [];
  const makers = { lines, matrix, row, model };
  for (const text of texts) await text.open();
  readColours();
  for (const box of document.querySelectorAll('[data-view]')) {
    const text = texts[box.dataset.text];
    const title = texts.length > 1 ? box.appendChild(make('h3')) : make('h3');
    text.text.forEach((part, i) => title.append(i ? ' | ' : '',
      make('bdi', { textContent: part })));
    views.push(Object.assign(makers[box.dataset.view](box, text), { name: box.dataset.view }));
  }
  form.addEventListener('submit', event => event.preventDefault());
  form.addEventListener('change', () => {
    change({ layer: +form.layer.value, head: +form.head.value, between: form.between.value,
      plain: form.plain.checked });
    sayHead(null, state.layer, state.head);
  });
  document.addEventListener('click', event => {
    const cell = event.target.closest('.heads td');
    if (cell) change({ layer: +cell.dataset.layer, head: +cell.dataset.head });
  });
  const redraw = () => { readColours(); change({}, false); };
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
  window.addEventListener('resize', redraw);
  const follow = () => {
    fromAddress();
    change({}, false);
    if (location.hash.includes('to='))
      sayWeight(texts[0], state.layer, state.head, state.from, state.to);
    else sayHead(null, state.layer, state.head);
  };
  window.addEventListener('hashchange', follow);
  document.documentElement.dataset.ready = '1';
  follow();
})().catch(error => {
  const box = document.getElementById('failed');
  box.textContent = `The figures cannot be drawn: ${error}`;
  box.hidden = false;
});
