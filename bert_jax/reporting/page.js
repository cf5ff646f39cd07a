// Shows the exact values of the marks that are nearest to the pointer; without it a page loses
// only this.
for (const chart of document.querySelectorAll('.chart[data-readings]')) {
  const svg = chart.querySelector('svg'), readings = JSON.parse(chart.dataset.readings);
  const tip = chart.appendChild(Object.assign(document.createElement('div'), { className: 'tip' }));
  const ring = svg.appendChild(document.createElementNS(svg.namespaceURI, 'circle'));
  ring.setAttribute('class', 'ring');
  ring.setAttribute('r', 6);
  const show = event => {
    const box = svg.getBoundingClientRect(), outer = chart.getBoundingClientRect();
    const scale = svg.viewBox.baseVal.width / box.width;
    const away = ([x, y]) => Math.hypot(x / scale + box.left - event.clientX,
      y / scale + box.top - event.clientY);
    const near = readings.reduce((best, other) => away(other) < away(best) ? other : best);
    ring.setAttribute('cx', near[0]);
    ring.setAttribute('cy', near[1]);
    const same = readings.filter(one => Math.hypot(one[0] - near[0], one[1] - near[1]) < 2);
    tip.textContent = same.map(reading => reading[2]).join('\n');
    chart.classList.add('read');
    const left = near[0] / scale + box.left - outer.left;
    const fits = left + tip.offsetWidth + 10 <= chart.clientWidth;
    tip.style.left = Math.max(4, fits ? left + 10 : left - tip.offsetWidth - 10) + 'px';
    tip.style.top = near[1] / scale + box.top - outer.top + 10 + 'px';
  };
  for (const kind of ['pointermove', 'pointerdown']) svg.addEventListener(kind, show);
  svg.addEventListener('pointerleave', () => chart.classList.remove('read'));
}

// A link to a section that is folded opens it.
function unfold() {
  const section = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  section?.querySelector(':scope > details')?.setAttribute('open', '');
}
addEventListener('hashchange', unfold);
unfold();
