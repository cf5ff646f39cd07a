// Reads numbers off the pictures that pictures.py draws, by pointer and arrow keys.
for (const figure of document.querySelectorAll('.picture')) {
  const img = figure.querySelector('img'), frame = img.parentNode,
    out = figure.querySelector('.read');
  const [wide, high, end] = [+img.getAttribute('width'), +img.getAttribute('height'),
    +figure.dataset.end];
  const names = figure.dataset.names ? JSON.parse(figure.dataset.names) : null;
  const same = figure.dataset.row === figure.dataset.column;
  const mark = frame.appendChild(make('div', { className: 'at', hidden: true }));
  let pixels = null, row = 0, column = 0;
  const show = () => {
    if (!pixels) {
      const canvas = make('canvas', { width: wide, height: high });
      const pen = canvas.getContext('2d', { willReadFrequently: true });
      pen.drawImage(img, 0, 0);
      pixels = pen.getImageData(0, 0, wide, high).data;
    }
    const p = 4 * (row * wide + column), size = pixels[p + 3] / 255 * end,
      value = pixels[p] < pixels[p + 2] ? -size : size;
    out.replaceChildren(figure.dataset.row + ' ');
    out.append(make('bdi', { textContent: names ? names[row] : String(row), dir: 'auto' }));
    out.append(`, ${figure.dataset.column} ${names && same ? names[column] : column}: `);
    out.append(make('b', { textContent: (pixels[p + 3] === 255 ? 'at least ' : 'about ')
      + value.toPrecision(2) }));
    mark.hidden = false;
    mark.style.left = (column + .5) / wide * 100 + '%';
    mark.style.top = (row + .5) / high * 100 + '%';
  };
  frame.tabIndex = 0;
  frame.setAttribute('role', 'application');
  frame.setAttribute('aria-label', img.alt + '; arrow keys read numbers off');
  frame.addEventListener('focus', show);
  frame.addEventListener('pointermove', event => {
    const box = img.getBoundingClientRect();
    column = clamp(Math.floor((event.clientX - box.left) / box.width * wide), 0, wide - 1);
    row = clamp(Math.floor((event.clientY - box.top) / box.height * high), 0, high - 1);
    show();
  });
  frame.addEventListener('keydown', event => {
    const way = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0],
      ArrowUp: [-1, 0] }[event.key];
    if (!way) return;
    event.preventDefault();
    const far = event.shiftKey ? 10 : 1;
    row = clamp(row + far * way[0], 0, high - 1);
    column = clamp(column + far * way[1], 0, wide - 1);
    show();
  });
}
