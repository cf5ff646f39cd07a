// Shows exact values under the pointer: of all lines of a chart at one place, or of the nearest
// dot; without it a page loses only this.
for (const svg of document.querySelectorAll('.chart svg')) {
  const chart = svg.closest('.chart');
  const lines = [...svg.querySelectorAll('polyline[data-readings]')];
  const [show, hide] = lines.length ? readOff(svg, lines) : nearest(svg) || [];
  if (!show) continue;
  const tip = chart.appendChild(Object.assign(document.createElement('div'), { className: 'tip' }));
  const over = event => {
    const shown = show(event);
    tip.textContent = shown.text; tip.style.display = 'block';
    const outer = chart.getBoundingClientRect(), left = shown.x - outer.left;
    const fits = left + tip.offsetWidth + 10 <= chart.clientWidth;
    tip.style.top = shown.y - outer.top + 6 + 'px';
    tip.style.left = Math.max(4, fits ? left + 10 : left - tip.offsetWidth - 10) + 'px';
  };
  for (const kind of ['pointermove', 'pointerdown']) svg.addEventListener(kind, over);
  svg.addEventListener('pointerleave', () => { tip.style.display = 'none'; hide(); });
}

// A link to a section that is folded opens it.
function unfold() {
  const section = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  section?.querySelector(':scope > details')?.setAttribute('open', '');
}
addEventListener('hashchange', unfold);
unfold();

function readOff(svg, polylines) {
  const [, top, , base] = svg.dataset.frame.split(' ').map(Number);
  const lines = polylines.map(line => ({
    name: line.dataset.name,
    places: line.getAttribute('points').split(' ').map(place => +place.split(',')[0]),
    readings: JSON.parse(line.dataset.readings),
  }));
  const cursor = document.createElementNS('http://www.w3.org/2000/svg', 'line');
  cursor.setAttribute('class', 'cursor'); cursor.style.display = 'none'; svg.appendChild(cursor);
  const show = event => {
    const box = svg.getBoundingClientRect(), scale = svg.viewBox.baseVal.width / box.width;
    const at = (event.clientX - box.left) * scale;
    const near = lines.map(({ places }) => {
      const distance = i => Math.abs(places[i] - at);
      const i = places.reduce((best, _, j) => distance(j) < distance(best) ? j : best, 0);
      return { i, place: places[i], away: distance(i) };
    });
    const first = near.reduce((best, other) => other.away < best.away ? other : best);
    const x = lines[near.indexOf(first)].readings[first.i][0];
    const values = lines.map(({ name, readings }, k) => {
      const [at, y] = readings.find(reading => reading[0] === x) || readings[near[k].i];
      return `\n${name}${name ? '  ' : ''}${y}${at === x ? '' : ` at ${at}`}`;
    });
    cursor.style.display = 'inline';
    const ends = { x1: first.place, x2: first.place, y1: top, y2: base };
    for (const [name, value] of Object.entries(ends)) cursor.setAttribute(name, value);
    const place = { x: box.left + first.place / scale, y: box.top + top / scale };
    return { text: x + values.join(''), ...place };
  };
  return [show, () => { cursor.style.display = 'none'; }];
}

function nearest(svg) {
  const titles = [...svg.querySelectorAll('.dot > title, .single > title')];
  const named = titles.map(title => {
    const mark = title.parentNode, text = title.textContent;
    title.remove(); // else the browser shows it a second time
    mark.setAttribute('aria-label', text);
    return { mark, text };
  });
  const show = event => {
    const near = named.map(({ mark, text }) => {
      const box = mark.getBoundingClientRect();
      const x = box.left + box.width / 2, y = box.top + box.height / 2;
      return { text, x, y, away: Math.hypot(event.clientX - x, event.clientY - y) };
    });
    return near.reduce((best, other) => other.away < best.away ? other : best);
  };
  return named.length ? [show, () => {}] : null;
}
