'use strict';
// What the scripts of all pages of a model share.
const byId = id => document.getElementById(id);
const data = JSON.parse(byId('data').textContent);
const SVG = 'http://www.w3.org/2000/svg';
const make = (name, settings = {}) => Object.assign(document.createElement(name), settings);
/** Return the colour of a category; neighbours differ most by the golden angle. */
const hue = k => `oklch(var(--tone) .14 ${(250 + 137.5 * k) % 360})`;
/** Return a colour of the page, such as 'ink', as three numbers. */
const rgb = name => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`)
  .match(/[0-9a-f]{2}/g).map(part => parseInt(part, 16));
/** Return the bytes of a text that `pack_bytes` wrote. */
async function unpack(text) {
  const packed = new Blob([Uint8Array.from(atob(text), c => c.charCodeAt(0))]);
  const stream = packed.stream().pipeThrough(new DecompressionStream('deflate'));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}
