// Puts the page of `bert-jax inspect attention` together, after the weights, the lines and the
// shaded cells. The address holds what is shown: #layer=3&head=2&from=1&to=4&heads=2,3&least=0.1.

const form = document.getElementById('controls'), said = document.getElementById('said');

function fromAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  const number = (name, count, otherwise = 0) => {
    const x = parseInt(given.get(name), 10);
    return x >= 1 ? Math.min(x, count) - 1 : otherwise;
  };
  const option = (select, value, otherwise) =>
    [...select.options].some(one => one.value === value) ? value : otherwise;
  const longest = Math.max(...texts.map(text => text.n));
  state.layer = number('layer', layers);
  state.head = given.get('head') === 'rollout' ? heads : number('head', heads);
  const listed = (given.get('heads') || '').split(',')
    .map(name => name === 'rollout' ? heads : parseInt(name, 10) - 1);
  state.shown = Array.from({ length: heads + 1 }, (_, head) => head)
    .filter(head => head === state.head || listed.includes(head));
  state.from = number('from', longest, data.causal ? longest - 1 : 0);
  state.to = number('to', longest);
  const segments = (given.get('between') || '').replace('ab', '01').replace('ba', '10')
    .replace('aa', '00');
  state.between = option(form.between, segments.replace('bb', '11'), 'all');
  state.plain = given.get('plain') === '1';
  state.most = +option(form.most, given.get('most'), '3');
  const least = given.get('least');
  state.least = least !== null && LEAST.includes(+least) ? +least : .05;
}

function toAddress() {
  const name = head => head < heads ? head + 1 : 'rollout';
  const parts = [`layer=${state.layer + 1}`, `head=${name(state.head)}`,
    `from=${state.from + 1}`, `to=${state.to + 1}`];
  if (state.shown.length > 1) parts.push(`heads=${state.shown.map(name).join()}`);
  if (state.between !== 'all')
    parts.push(`between=${[...state.between].map(k => 'ab'[k]).join('')}`);
  if (state.plain) parts.push('plain=1');
  if (state.most !== 3) parts.push(`most=${state.most}`);
  if (state.least !== .05) parts.push(`least=${state.least}`);
  toHash(`#${parts.join('&')}`);
}

const say = (...parts) => said.replaceChildren(...parts);

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

let showButtons = () => {};

/** Change the state, redraw, and write the state into the address. */
function change(next, remember = true) {
  Object.assign(state, next);
  if (!state.shown.includes(state.head)) state.shown = [state.head];  // chosen elsewhere
  for (const name of ['layer', 'head', 'between', 'most']) form[name].value = state[name];
  form.plain.checked = state.plain;
  form.least.value = LEAST.indexOf(state.least);
  document.getElementById('least').textContent = state.least || 'any';
  Object.assign(document.documentElement.dataset, { layer: state.layer + 1, head: state.head + 1 });
  for (const cell of document.querySelectorAll('.heads td'))
    cell.classList.toggle('chosen', +cell.dataset.layer === state.layer
      && +cell.dataset.head === state.head);
  showButtons();
  views.forEach(view => view.draw());
  if (remember) toAddress();
}

function listen() {
  const settings = () => ({ layer: +form.layer.value, head: +form.head.value,
    between: form.between.value, plain: form.plain.checked, most: +form.most.value,
    least: LEAST[form.least.value] });
  form.addEventListener('submit', event => event.preventDefault());
  form.addEventListener('change', () => {
    change(settings());
    sayHead(null, state.layer, state.head);
  });
  document.getElementById('filter').addEventListener('input', () => change(settings()));
  document.addEventListener('click', event => {
    const cell = event.target.closest('.heads td');
    if (cell) change({ layer: +cell.dataset.layer, head: +cell.dataset.head });
  });
  const redraw = () => { readColours(); change({}, false); };
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
  window.addEventListener('resize', redraw);
}

function follow() {
  fromAddress();
  change({}, false);
  if (location.hash.includes('to='))
    sayWeight(texts[0], state.layer, state.head, state.from, state.to);
  else sayHead(null, state.layer, state.head);
}

async function start() {
  texts.push(...data.texts.map(stored => new Weights(stored)));
  for (const text of texts) await text.open();
  readColours();
  const makers = { lines, matrix, row, model };
  for (const box of document.querySelectorAll('[data-view]')) {
    const text = texts[box.dataset.text];
    const title = texts.length > 1 ? box.appendChild(make('h3')) : make('h3');
    text.text.forEach((part, i) => title.append(i ? ' | ' : '',
      make('bdi', { textContent: part })));
    views.push(Object.assign(makers[box.dataset.view](box, text), { name: box.dataset.view }));
  }
  showButtons = headButtons();
  listen();
  window.addEventListener('hashchange', follow);
  document.documentElement.dataset.ready = '1';
  follow();
}

start().catch(error => {
  const box = document.getElementById('failed');
  box.textContent = `The figures cannot be drawn: ${error}`;
  box.hidden = false;
});
