// Shows exact values of a chart under the pointer; without it a page loses only this.
for (const chart of document.querySelectorAll('.chart[data-x]')) {
  const svg = chart.querySelector('svg'), lines = [...svg.querySelectorAll('polyline')];
  const axis = text => { const [low, high, start, stop, log] = text.split(' ').map(Number);
    return at => {
      const v = low + (at - start) / (stop - start) * (high - low);
      return log ? 10 ** v : v;
    };
  };
  const x = axis(chart.dataset.x), y = axis(chart.dataset.y);
  const percent = chart.dataset.percent === '1';
  const data = lines.map(l => ({ name: l.dataset.name, points: l.getAttribute('points').split(' ')
    .map(p => p.split(',').map(Number)) }));
  const ticks = (chart.dataset.ticks || '').split('|').filter(Boolean);
  const compact = { notation: 'compact', maximumFractionDigits: 2 };
  const short = v => Math.round(v).toLocaleString('en', v < 1e7 ? {} : compact);
  const tip = chart.appendChild(Object.assign(document.createElement('div'), { className: 'tip' }));
  const cursor = document.createElementNS('http://www.w3.org/2000/svg', 'line');
  cursor.setAttribute('class', 'cursor'); cursor.style.display = 'none'; svg.appendChild(cursor);
  const hide = () => { tip.style.display = cursor.style.display = 'none'; };
  svg.addEventListener('pointerleave', hide);
  svg.addEventListener('pointermove', event => {
    const box = svg.getBoundingClientRect(), wide = svg.viewBox.baseVal,
      scale = wide.width / box.width;
    const at = (event.clientX - box.left) * scale;
    const nearer = (a, b) => Math.abs(b[0] - at) < Math.abs(a[0] - at) ? b : a;
    const near = data.map(s => s.points.reduce(nearer));
    const column = near.reduce(nearer)[0];
    const place = ticks.filter(t => Math.abs(parseFloat(t) - column) < 12)
      .map(t => t.slice(t.indexOf(' ') + 1))[0];
    const written = v => percent ? (100 * v).toFixed(1) + ' %' : +v.toPrecision(4);
    const values = data.map((s, i) => '\n' + s.name + '  ' + written(y(near[i][1])));
    tip.textContent = [chart.dataset.of || 'step', ' ', place || short(x(column)), ...values]
      .join('');
    cursor.style.display = 'inline'; tip.style.display = 'block';
    const ends = { x1: column, x2: column, y1: 10, y2: wide.height - 28 };
    for (const [name, value] of Object.entries(ends)) cursor.setAttribute(name, value);
    const outer = chart.getBoundingClientRect(), left = box.left - outer.left + column / scale;
    tip.style.top = box.top - outer.top + 6 + 'px';
    const aside = left > chart.clientWidth / 2 ? -tip.offsetWidth - 10 : 10;
    tip.style.left = Math.max(4, left + aside) + 'px';
  });
}
