// Plays the rounds of `bert-jax inspect generation`. All texts show the same round, those with fewer
// rounds their last one. The address holds what is shown: #round=3&colour=when.
(() => {
  const byId = id => document.getElementById(id);
  const data = JSON.parse(byId('data').textContent);
  const slider = byId('round'), colour = byId('colour'), play = byId('play'), said = byId('said');
  const last = +slider.max, TONES = 10;

  // --- texts ------------------------------------------------------------------------------------

  /** Build the boxes of a text's tokens, and return the function that shows a round of it. */
  function player(text) {
    const box = byId('texts').appendChild(make('div', { className: 'box' }));
    box.appendChild(make('h3')).append(make('bdi', { textContent: text.text || '(no text)' }));
    const list = box.appendChild(make('ol', { className: 'tokens' }));
    const rounds = text.steps.length, chips = [];
    for (const token of text.tokens) {
      const chip = list.appendChild(make('li'));
      chip.append(make('bdi', { textContent: token }), make('small'));
      chips.push(chip);
    }
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
      const shown = Math.min(now, rounds), when = colour.value === 'when';
      for (const { place, probability, round } of choices) {
        const chip = chips[place], tone = Math.floor((round - 1) / rounds * TONES);
        const open = round <= shown;
        chip.className = open ? `chosen ${when ? `q${tone}` : 'c1'}` : 'masked';
        chip.classList.toggle('new', round === now);
        chip.style.setProperty('--share', when ? .7 : probability);
      }
      final.classList.toggle('later', shown < rounds);
      return choices.filter(one => one.round === now);
    };
  }

  // --- rounds -----------------------------------------------------------------------------------

  const players = data.texts.map(player);
  let timer = 0;

  function show(round, remember = true) {
    slider.value = round;
    const found = players.flatMap(each => each(round)), chances = found.map(one => one.probability);
    const range = [...new Set([Math.min(...chances), Math.max(...chances)].map(x => x.toFixed(2)))];
    said.textContent = round ? `round ${round} of ${last}: ${found.length} `
      + `token${found.length === 1 ? '' : 's'}, probability ${range.join(' to ')}`
      : `before the first of ${last} round${last === 1 ? '' : 's'}`;
    slider.setAttribute('aria-valuetext', said.textContent);
    document.documentElement.dataset.round = round;
    if (remember) toHash(`#round=${round}&colour=${colour.value}`);
  }

  function stop() {
    clearInterval(timer);
    timer = 0;
    play.textContent = 'Play';
  }

  function start() {
    if (+slider.value >= last) show(0);
    play.textContent = 'Pause';
    const pause = clamp(12000 / last, 120, 1000);  // twelve seconds in all, within reason
    timer = setInterval(() => {
      show(+slider.value + 1);
      if (+slider.value >= last) stop();
    }, pause);
  }

  play.addEventListener('click', () => timer ? stop() : start());
  slider.addEventListener('input', () => { stop(); show(+slider.value); });
  colour.addEventListener('change', () => show(+slider.value));
  byId('controls').addEventListener('submit', event => event.preventDefault());

  const follow = () => {
    const given = new URLSearchParams(location.hash.slice(1));
    const round = parseInt(given.get('round'), 10);
    colour.value = given.get('colour') === 'when' ? 'when' : 'sure';
    show(Number.isNaN(round) ? last : clamp(round, 0, last), false);
  };
  window.addEventListener('hashchange', follow);
  follow();
  document.documentElement.dataset.ready = '1';
})();
