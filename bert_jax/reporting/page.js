// Shows the exact values of a chart's lines under the pointer; without it a page loses only this.
for (const chart of document.querySelectorAll('.chart[data-frame]')) {
  const svg = chart.querySelector('svg');
  const [, top, , base] = chart.dataset.frame.split(' ').map(Number);
  const lines = [...svg.querySelectorAll('polyline[data-readings]')].map(line => ({
    name: line.dataset.name,
    places: line.getAttribute('points').split(' ').map(place => +place.split(',')[0]),
    readings: JSON.parse(line.dataset.readings),
  }));
  const tip = chart.appendChild(Object.assign(document.createElement('div'), { className: 'tip' }));
  const cursor = document.createElementNS('http://www.w3.org/2000/svg', 'line');
  cursor.setAttribute('class', 'cursor'); cursor.style.display = 'none'; svg.appendChild(cursor);
  const hide = () => { tip.style.display = cursor.style.display = 'none'; };
  svg.addEventListener('pointerleave', hide);
  svg.addEventListener('pointermove', event => {
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
    tip.textContent = x + values.join('');
    cursor.style.display = 'inline'; tip.style.display = 'block';
    const ends = { x1: first.place, x2: first.place, y1: top, y2: base };
    for (const [name, value] of Object.entries(ends)) cursor.setAttribute(name, value);
    const outer = chart.getBoundingClientRect();
    const left = box.left - outer.left + first.place / scale;
    tip.style.top = box.top - outer.top + top / scale + 6 + 'px';
    const fits = left + tip.offsetWidth + 10 <= chart.clientWidth;
    tip.style.left = Math.max(4, fits ? left + 10 : left - tip.offsetWidth - 10) + 'px';
  });
}
