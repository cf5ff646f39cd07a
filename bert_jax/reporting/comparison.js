// Switches the axes of the curves and smooths them; without it they stand as they were measured.
{
  const curves = document.getElementById('curves');
  const least = 26; // points of a line that is smoothed; each point of a shorter one has a dot
  const lines = [...(curves?.querySelectorAll('polyline[data-readings]') ?? [])]
    .map(line => ({ line, points: line.getAttribute('points') }))
    .filter(({ points }) => points.split(' ').length >= least);

  // Moving average with weights that fall by `weight` a point, of the points so far alone.
  function smooth(points, weight) {
    let sum = 0, weights = 0;
    return points.split(' ').map(place => {
      const [x, y] = place.split(',');
      sum = weight * sum + Number(y);
      weights = weight * weights + 1;
      return `${x},${(sum / weights).toFixed(1)}`;
    }).join(' ');
  }

  function redraw(weight) {
    for (const entry of lines) {
      entry.line.setAttribute('points', smooth(entry.points, weight));
      if (weight && !entry.measured) { // what was measured stays, faint, below
        entry.measured = entry.line.cloneNode(false);
        entry.measured.removeAttribute('data-readings');
        entry.measured.setAttribute('points', entry.points);
        entry.measured.classList.replace('line', 'measured');
        entry.line.before(entry.measured);
      }
      if (entry.measured) entry.measured.style.display = weight ? '' : 'none';
    }
  }

  const slider = document.getElementById('smoothing'), box = document.getElementById('log');
  slider?.addEventListener('input', () => {
    document.getElementById('smoothed').textContent = slider.value;
    redraw(+slider.value);
  });
  box?.addEventListener('change', () => curves.classList.toggle('logarithmic', box.checked));
}
