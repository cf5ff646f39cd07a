// Shows the rounds of `bert-jax inspect generation`. All texts show the same round, those with fewer
// rounds their last one.
const slider = byId('round'), said = byId('said'), last = +slider.max;

/** Build the boxes of a text's tokens; return a function that shows a round and lists its choices. */
function makePlayer(text) {
  const box = byId('texts').appendChild(make('div', { className: 'box' }));
  box.appendChild(make('h3')).append(make('bdi', { textContent: text.text }));
  const list = box.appendChild(make('ol', { className: 'tokens' }));
  const chips = text.tokens.map(token => {
    const chip = list.appendChild(make('li'));
    chip.append(make('bdi', { textContent: token }), make('small'));
    return chip;
  });
  const choices = text.steps.flatMap((step, k) => step.map(one => ({ ...one, round: k + 1 })));
  for (const { place, probability, round } of choices) {
    chips[place].lastChild.textContent = `${round} · ${probability.toFixed(2)}`;
    chips[place].style.setProperty('--share', probability);
    chips[place].addEventListener('click', () => show(round));
  }
  const final = box.appendChild(make('p', { className: 'final' }));
  final.append(make('bdi', { textContent: text.final }));
  return now => {
    for (const { place, round } of choices) {
      chips[place].className = round <= now ? 'chosen' : 'masked';
      chips[place].classList.toggle('new', round === now);
    }
    final.classList.toggle('later', now < text.steps.length);
    return choices.filter(one => one.round === now);
  };
}

const players = data.texts.map(makePlayer);

function show(round) {
  slider.value = round;
  const chances = players.flatMap(player => player(round)).map(one => one.probability);
  const ends = [Math.min(...chances), Math.max(...chances)].map(x => x.toFixed(2));
  said.textContent = round ? `round ${round} of ${last}: ${chances.length} `
    + `token${chances.length === 1 ? '' : 's'}, probability ${[...new Set(ends)].join(' to ')}`
    : `before the first of ${last} round${last === 1 ? '' : 's'}`;
}

slider.addEventListener('input', () => show(+slider.value));
show(last);
document.documentElement.dataset.ready = '1';
