// Plays the rounds of `bert-jax inspect generation`. All texts show the same round, those with fewer
// rounds their last one.
const byId = id => document.getElementById(id);
const slider = byId('round'), colour = byId('colour'), play = byId('play'), said = byId('said');
const last = +slider.max, TONES = 10;

/** Build the boxes of a text's tokens; return a function that shows a round and lists its choices. */
function makePlayer(text) {
  const box = byId('texts').appendChild(make('div', { className: 'box' }));
  box.appendChild(make('h3')).append(make('bdi', { textContent: text.text || '(no text)' }));
  const list = box.appendChild(make('ol', { className: 'tokens' }));
  const rounds = text.steps.length;
  const chips = text.tokens.map(token => {
    const chip = list.appendChild(make('li'));
    chip.append(make('bdi', { textContent: token }), make('small'));
    return chip;
  });
  const choices = text.steps.flatMap((step, k) => step.map(one => ({ ...one, round: k + 1 })));
  for (const { place, token, probability, round } of choices) {
    const chip = chips[place];
    chip.lastChild.textContent = `${round} · ${probability.toFixed(2)}`;
    chip.title = `${token}: chosen in round ${round} of ${rounds}, `
      + `with probability ${probability.toFixed(4)}`;
    chip.addEventListener('click', () => show(round));
  }
  const final = box.appendChild(make('p', { className: 'final' }));
  final.append(make('bdi', { textContent: text.final }));
  return now => {
    const when = colour.value === 'when';
    for (const { place, probability, round } of choices) {
      const chip = chips[place], tone = Math.floor((round - 1) / rounds * TONES);
      chip.className = round <= now ? 'chosen' : 'masked';
      chip.classList.toggle('new', round === now);
      chip.style.color = `var(--${when ? `q${tone}` : 'c1'})`;
      chip.style.setProperty('--share', when ? .7 : probability);
    }
    final.classList.toggle('later', now < rounds);
    return choices.filter(one => one.round === now);
  };
}

const players = data.texts.map(makePlayer);
let timer = 0;

function show(round) {
  slider.value = round;
  const chances = players.flatMap(player => player(round)).map(one => one.probability);
  const ends = [Math.min(...chances), Math.max(...chances)].map(x => x.toFixed(2));
  said.textContent = round ? `round ${round} of ${last}: ${chances.length} `
    + `token${chances.length === 1 ? '' : 's'}, probability ${[...new Set(ends)].join(' to ')}`
    : `before the first of ${last} round${last === 1 ? '' : 's'}`;
}

function stop() {
  clearInterval(timer);
  timer = 0;
  play.textContent = 'Play';
}

play.addEventListener('click', () => {
  if (timer) return stop();
  if (+slider.value >= last) show(0);
  play.textContent = 'Pause';
  timer = setInterval(() => {
    show(+slider.value + 1);
    if (+slider.value >= last) stop();
  }, Math.max(120, Math.min(1000, 12000 / last)));
});
slider.addEventListener('input', () => { stop(); show(+slider.value); });
colour.addEventListener('change', () => show(+slider.value));
show(last);
document.documentElement.dataset.ready = '1';
