// The weights of the page as numbers, and what all its figures share: a layer, a head (the last is
// the rollout), the heads drawn as lines, which weights count, and one weight, from one token to
// another.

const data = JSON.parse(document.getElementById('data').textContent);
const { layers, heads } = data, scale = 10 ** data.digits;
const state = { layer: 0, head: 0, shown: [0], between: 'all', plain: false, most: 3, least: .05,
  from: 0, to: 0, only: null, kept: null };
const texts = [], views = [];

const inflated = async text => new Uint8Array(await new Response(
  new Blob([bytes(text)]).stream().pipeThrough(new DecompressionStream('deflate')))
    .arrayBuffer());

/** The weights of one text, and what it is made of. */
class Weights {
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

const named = (layer, head) => head < heads ? `layer ${layer + 1}, head ${head + 1}`
  : `rollout to layer ${layer + 1}`;
const token = (text, i) => make('bdi', { textContent: text.tokens[i] });
const of = text => texts.length > 1 ? `text ${texts.indexOf(text) + 1}, ` : '';
const strength = w => Math.sqrt(w);  // of a line or a cell, 0 to 1
const FONT = '12px system-ui, sans-serif';

/** Return the name of a file of a figure. */
const fileName = (figure, text) => ['attention', figure,
  ...(texts.length > 1 ? [`text${texts.indexOf(text) + 1}`] : []), `layer${state.layer + 1}`,
  state.head < heads ? `head${state.head + 1}` : 'rollout'].join('-');
