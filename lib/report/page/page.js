// Draws the report from the JSON of the element "data". Texts of the data are only ever set as text.
'use strict';
(() => {
  window.addEventListener('error', (event) => { document.documentElement.dataset.error = event.message; });
  window.addEventListener('unhandledrejection', (event) => { document.documentElement.dataset.error = event.reason; });
  const report = JSON.parse(document.getElementById('data').textContent);
  const runs = report.runs;
  const root = document.documentElement;
  const many = runs.length > 1;
  // Not curves: positions on the x axis and counters.
  const hidden = new Set(['step', 'time', 'attempt', 'samples_seen', 'tokens_seen', 'epoch', 'eval_samples', 'eval_seconds', 'best']);
  const titles = {
    loss: 'Loss', learning_rate: 'Learning rate', grad_norm: 'Gradient norm', samples_per_second: 'Samples per second',
    tokens_per_second: 'Tokens per second', step_ms: 'Time of a step (ms)', data_wait_ms: 'Wait for data (ms)',
    memory_mib: 'Resident memory (MiB)', mfu: 'Model FLOP utilization', accuracy: 'Accuracy', perplexity: 'Perplexity',
  };
  const axes = {
    step: 'Step', time: 'Hours since the start', samples_seen: 'Samples', tokens_seen: 'Tokens', epoch: 'Epochs',
  };
  const state = { x: 'step', smooth: 0, logX: false, logY: false, zoom: null, shown: runs.map(() => true), result: null };
  const charts = [];  // {key, canvas, chart}; make: returns the chart of a setting instead of curves

  function el(tag, attributes, ...children) {
    const out = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes || {})) {
      if (key.startsWith('on')) out.addEventListener(key.slice(2), value);
      else if (value !== false && value !== null && value !== undefined) out.setAttribute(key, value);
    }
    for (const child of children.flat()) if (child !== null && child !== undefined) out.append(child);
    return out;
  }

  const palette = ['#0969da', '#d1570b', '#1a7f37', '#8250df', '#bf3989', '#9a6700', '#1b7c83', '#cf222e'];
  const darkPalette = ['#58a6ff', '#f0883e', '#3fb950', '#bc8cff', '#f778ba', '#d29922', '#39c5cf', '#ff7b72'];
  function color(i) {
    const colors = root.dataset.theme === 'dark' ? darkPalette : palette;
    return i < colors.length ? colors[i] : `hsl(${(i * 137.5) % 360} 65% ${root.dataset.theme === 'dark' ? 65 : 42}%)`;
  }
  function number(value) {
    if (value === null || value === undefined || !isFinite(value)) return '–';
    if (value === 0) return '0';
    const size = Math.abs(value);
    if (Number.isInteger(value) && size < 1e7) return value.toLocaleString('en');
    return size >= 1e5 || size < 1e-3 ? value.toExponential(3) : value.toPrecision(4).replace(/(\.\d*?)0+$/, '$1').replace(/\.$/, '');
  }
  function bytes(value) {
    let unit = 0;
    while (value >= 1024 && unit < 4) { value /= 1024; ++unit; }
    return `${unit ? value.toFixed(1) : value} ${['B', 'KiB', 'MiB', 'GiB', 'TiB'][unit]}`;
  }
  function count(value) {
    for (const [size, unit] of [[1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e3, 'k']]) if (value >= size) return (value / size).toFixed(1) + ' ' + unit;
    return String(Math.round(value));
  }
  function section(title, ...children) {
    const id = title.toLowerCase().replace(/[^a-z]+/g, '-');
    return el('section', { 'aria-labelledby': id }, el('h2', { id }, title), ...children);
  }
  // Cells are texts, numbers or elements. A click on a column's name sorts by it.
  function table(columns, rows, attributes) {
    const body = el('tbody');
    const fill = (list) => body.replaceChildren(...list.map((row) => el('tr', {}, row.map((cell) =>
      el('td', { class: typeof cell === 'number' ? 'number' : typeof cell === 'string' ? 'text' : null }, typeof cell === 'number' ? number(cell) : cell ?? '–')))));
    fill(rows);
    const numeric = columns.map((_, i) => rows.some((row) => typeof row[i] === 'number'));
    const value = (cell) => (cell instanceof Node ? cell.textContent : cell);
    const sort = (i, button) => {
      const down = button.dataset.down !== 'yes';
      button.dataset.down = down ? 'yes' : 'no';
      fill([...rows].sort((a, b) => {
        const [x, y] = [value(a[i]), value(b[i])];
        if (x === null || x === undefined) return 1;
        if (y === null || y === undefined) return -1;
        const order = typeof x === 'number' && typeof y === 'number' ? x - y : String(x).localeCompare(String(y), 'en', { numeric: true });
        return down ? order : -order;
      }));
    };
    const head = el('tr', {}, columns.map((name, i) => el('th', { scope: 'col', class: numeric[i] ? 'number' : null },
      el('button', { type: 'button', title: 'Sort', onclick: (event) => sort(i, event.currentTarget) }, name))));
    return el('div', { class: 'wide' }, el('table', attributes || {}, el('thead', {}, head), body));
  }
  const bar = (value, most, text) => el('span', { title: text }, el('span', { class: 'bar', style: `width:${most > 0 ? (6 * value / most).toFixed(2) : 0}em` }), ' ', text);

  // ---- curves ----

  // The points of a column of a run as {x, y}, without those that are not finite.
  function points(part, column) {
    const ys = part.columns[column];
    const xs = part.columns[state.x];
    if (!ys || !xs) return [];
    const first = state.x === 'time' ? part.start : 0;
    const scale = state.x === 'time' ? 3600 : 1;
    const out = [];
    for (let i = 0; i < ys.length; ++i) if (ys[i] !== null && xs[i] !== null) out.push({ x: (xs[i] - first) / scale, y: ys[i] });
    return out;
  }
  // An exponential mean without the bias to the first value (Kingma & Ba 2015).
  function smoothed(list, kept) {
    let sum = 0, weight = 0;
    return list.map(({ x, y }) => {
      sum = kept * sum + (1 - kept) * y;
      weight = kept * weight + (1 - kept);
      return { x, y: sum / weight };
    });
  }
  function line(label, data, i, dashed, faint, evaluation) {
    return {
      label, data, borderColor: faint ? color(i) + (color(i)[0] === '#' ? '40' : '') : color(i), backgroundColor: color(i),
      borderWidth: faint ? 1 : evaluation && !many ? 2.2 : 1.6, borderDash: dashed ? [6, 4] : [],
      pointRadius: evaluation && data.length < 40 ? 2.5 : 0, pointHitRadius: 6, faint,
    };
  }
  // Training is a full line; the evaluation, with several runs, a dashed one in the color of the run.
  function datasets(key) {
    const out = [];
    runs.forEach((run, i) => {
      if (!state.shown[i]) return;
      const name = many ? run.name : '';
      const train = points(run.train, key);
      const evaluation = points(run.eval, 'eval_' + key);
      if (train.length) {
        const label = many ? name + (evaluation.length ? ' (training)' : '') : evaluation.length ? 'training' : titles[key] || key;
        if (state.smooth > 0) out.push(line(label, train, i, false, true));
        out.push(line(label, state.smooth > 0 ? smoothed(train, state.smooth) : train, i, false, false));
      }
      if (evaluation.length) out.push(line(many ? name + ' (evaluation)' : 'evaluation', evaluation, many ? i : 1, many && train.length > 0, false, true));
    });
    return out;
  }
  function options(key) {
    const style = getComputedStyle(root);
    const grid = { color: style.getPropertyValue('--line') };
    const ticks = { color: style.getPropertyValue('--weak'), maxRotation: 0 };
    return {
      animation: false, parsing: false, normalized: true, maintainAspectRatio: false,
      interaction: { mode: 'nearest', axis: 'x', intersect: false },
      scales: {
        x: { type: state.logX ? 'logarithmic' : 'linear', grid, ticks, title: { display: true, text: axes[state.x], color: ticks.color }, ...(state.zoom || {}) },
        y: { type: state.logY ? 'logarithmic' : 'linear', grid, ticks },
      },
      plugins: {
        legend: { display: false },
        decimation: { enabled: !state.logX, algorithm: 'min-max' },
        tooltip: {
          filter: (item, index) => !item.dataset.faint && index < 24,
          callbacks: {
            title: (items) => (items.length ? `${axes[state.x]} ${number(items[0].parsed.x)}` : ''),
            label: (item) => `${item.dataset.label}: ${number(item.parsed.y)}`,
          },
        },
      },
    };
  }
  function draw(entry) {
    if (entry.chart) entry.chart.destroy();
    if (entry.make) {
      entry.chart = new Chart(entry.canvas, entry.make());
      return;
    }
    const data = { datasets: datasets(entry.key) };
    // What a screen reader says.
    const last = data.datasets.filter((set) => !set.faint).slice(0, 10).map((set) => `${set.label} ${number(set.data.length ? set.data[set.data.length - 1].y : null)}`);
    entry.canvas.setAttribute('aria-label', `${titles[entry.key] || entry.key} by ${axes[state.x]}. At the end: ${last.join(', ')}`);
    const shown = options(entry.key);
    const values = data.datasets.flatMap((set) => set.data.map((point) => point.y));
    if (values.length && values.every((value) => value === values[0])) {  // Chart.js would show a constant as 0
      Object.assign(shown.scales.y, { suggestedMin: Math.min(0, 2 * values[0]), suggestedMax: Math.max(0, 2 * values[0]) });
    }
    entry.chart = new Chart(entry.canvas, { type: 'line', data, options: shown });
  }
  function redraw() {
    for (const entry of charts) if (entry.chart) draw(entry);
  }
  function zoom(range) {
    state.zoom = range;
    for (const { chart, make } of charts) {
      if (!chart || make) continue;
      delete chart.options.scales.x.min;
      delete chart.options.scales.x.max;
      Object.assign(chart.options.scales.x, range || {});
      chart.update('none');
    }
    root.dataset.zoom = range ? 'yes' : 'no';
  }
  // Dragging selects a range, a double click or Escape shows all; + and - zoom, arrows move.
  function interact(entry, box) {
    const { canvas } = entry;
    let from = null;
    const mark = el('div', { class: 'selection', hidden: '' });
    box.append(mark);
    const place = (event) => {
      const { left, right } = entry.chart.chartArea;
      return Math.min(right, Math.max(left, event.clientX - canvas.getBoundingClientRect().left));
    };
    const done = (event) => {
      if (from === null) return;
      const [a, b] = [from, place(event)].sort((p, q) => p - q);
      from = null;
      mark.hidden = true;
      const scale = entry.chart.scales.x;
      if (b - a > 5) zoom({ min: scale.getValueForPixel(a), max: scale.getValueForPixel(b) });
    };
    canvas.addEventListener('pointerdown', (event) => { if (entry.chart && event.button === 0) from = place(event); });
    canvas.addEventListener('pointermove', (event) => {
      if (from === null) return;
      const to = place(event);
      mark.hidden = false;
      mark.style.left = Math.min(from, to) + 'px';
      mark.style.width = Math.abs(to - from) + 'px';
    });
    canvas.addEventListener('pointerup', done);
    canvas.addEventListener('pointerleave', done);
    canvas.addEventListener('dblclick', () => zoom(null));
    canvas.addEventListener('keydown', (event) => {
      if (!entry.chart) return;
      const { min, max } = entry.chart.scales.x;
      const range = max - min;
      const to = { '+': [0.2, -0.2], '=': [0.2, -0.2], '-': [-0.25, 0.25], ArrowLeft: [-0.2, -0.2], ArrowRight: [0.2, 0.2] }[event.key];
      if (event.key === 'Escape' || event.key === '0') zoom(null);
      else if (to) zoom({ min: min + to[0] * range, max: max + to[1] * range });
      else return;
      event.preventDefault();
    });
  }
  const watcher = new IntersectionObserver((seen) => {
    for (const { target, isIntersecting } of seen) {
      const entry = charts.find((one) => one.canvas === target);
      if (isIntersecting && entry && !entry.chart) draw(entry);
    }
  }, { rootMargin: '200px' });
  function drawAll() {
    for (const entry of charts) if (!entry.chart) draw(entry);
  }

  function curveKeys() {
    const found = new Set();
    for (const run of runs) {
      for (const key of Object.keys(run.train.columns)) if (!hidden.has(key)) found.add(key);
      for (const key of Object.keys(run.eval.columns)) if (!hidden.has(key)) found.add(key.replace(/^eval_/, ''));
    }
    const first = ['loss', 'accuracy', 'perplexity'];
    const last = ['learning_rate', 'grad_norm', 'tokens_per_second', 'samples_per_second', 'step_ms', 'data_wait_ms', 'memory_mib', 'mfu'];
    const rank = (key) => (first.includes(key) ? first.indexOf(key) : last.includes(key) ? 100 + last.indexOf(key) : 50);
    return [...found].sort((a, b) => rank(a) - rank(b) || a.localeCompare(b));
  }
  function curves() {
    const keys = curveKeys();
    if (!keys.length) return section('Curves', el('p', {}, 'No step has been logged.'));
    const choices = Object.keys(axes).filter((key) => runs.some((run) => run.train.columns[key] || run.eval.columns[key]));
    const select = el('select', { id: 'x-axis', onchange: (event) => { state.x = event.target.value; state.zoom = null; redraw(); } },
      choices.map((key) => el('option', { value: key, selected: key === state.x && '' }, axes[key])));
    const check = (text, key) => el('label', {}, el('input', { type: 'checkbox', id: key, checked: state[key] && '', onchange: (event) => { state[key] = event.target.checked; redraw(); } }), text);
    const smooth = el('input', { type: 'range', id: 'smooth', min: 0, max: 0.99, step: 0.01, value: state.smooth, oninput: (event) => { state.smooth = Number(event.target.value); redraw(); } });
    const grid = el('div', { class: 'charts' });
    for (const key of keys) {
      const canvas = el('canvas', { tabindex: 0, role: 'img' });
      const box = el('div', { class: 'canvas' }, canvas);
      const both = runs.some((run) => run.train.columns[key] && run.eval.columns['eval_' + key]);
      const legend = both && !many ? [el('span', { style: `color:${color(0)}` }, 'training '), el('span', { style: `color:${color(1)}` }, 'evaluation')]
        : both ? ['training, evaluation dashed'] : [];
      grid.append(el('figure', {}, el('figcaption', {}, titles[key] || key, el('span', { class: 'weak' }, legend)), box));
      const entry = { key, canvas, chart: null };
      charts.push(entry);
      interact(entry, box);
      watcher.observe(canvas);
    }
    const thinned = runs.filter((run) => run.train.count > run.train.kept);
    return section('Curves',
      el('div', { class: 'controls' }, el('label', { for: 'x-axis' }, 'x axis ', select), el('label', {}, 'smoothing ', smooth),
        check('log y', 'logY'), check('log x', 'logX'), el('button', { type: 'button', onclick: () => zoom(null) }, 'show all'),
        el('span', { class: 'weak' }, 'drag to zoom, double click to show all; keys: + − ← → Esc')),
      grid,
      thinned.length ? el('p', { class: 'weak' }, `${thinned[0].train.count.toLocaleString('en')} logged steps are drawn as ${thinned[0].train.kept.toLocaleString('en')}: of each group the smallest and largest loss and gradient norm (--points).`) : null);
  }

  // ---- tables ----

  function header() {
    const one = runs[0];
    const theme = el('button', { type: 'button', id: 'theme', onclick: () => setTheme(root.dataset.theme === 'dark' ? 'light' : 'dark') }, 'light / dark');
    const title = el('h1', {}, report.title);
    if (many) return [el('header', {}, title, theme), el('p', { class: 'weak' }, `${runs.length} runs`)];
    const notes = [one.goal ? el('p', {}, 'Goal: ' + one.goal) : null, one.notes ? el('p', {}, one.notes) : null,
      one.tags.length ? el('p', { class: 'weak' }, one.tags.map((tag) => '#' + tag).join(' ')) : null];
    return [el('header', {}, title, theme), el('p', {}, status(one), ' ', el('span', { class: 'weak' }, one.folder), el('span', { class: 'weak', id: 'live' })), ...notes, verdict(one)];
  }
  const status = (run) => el('span', { class: 'status ' + run.status.split(' ')[0] }, run.status);
  const verdict = (run) => el('p', { class: 'verdict' }, run.verdict, run.problem ? el('span', { class: 'wrong' }, ' ' + run.problem) : null);

  function overview() {
    if (!many) {
      const figures = runs[0].figures;
      const shown = Object.keys(figures).filter((key) => !['format', 'exit_code', 'attempt'].includes(key));
      return section('Figures', el('details', {}, el('summary', {}, `${shown.length} numbers of summary.json`), table(['figure', 'value'], shown.map((key) => [key, figures[key]]))));
    }
    const results = ['steps', 'loss', 'eval_loss', 'best_eval_loss', 'eval_accuracy', 'best_eval_accuracy', 'seconds', 'peak_rss_mib'].filter((key) => runs.some((run) => key in run.figures));
    const differing = report.differing.slice(0, 8);  // all of them stand under Configuration
    const rows = runs.map((run, i) => [
      el('label', {}, el('input', { type: 'checkbox', checked: state.shown[i] && '', 'aria-label': 'show ' + run.name, onchange: (event) => { state.shown[i] = event.target.checked; redraw(); } }),
        ' ', el('span', { class: 'swatch', style: `background:${color(i)}` }), run.name),
      status(run), ...results.map((key) => run.figures[key] ?? null), ...differing.map((key) => asValue(run.settings[key])), judgement(run)]);
    return section('Runs', table(['run', 'status', ...results, ...differing, 'verdict'], rows, { id: 'runs' }));
  }
  // The verdict without the figures, which have columns.
  const judgement = (run) => run.problem || run.verdict.split('; ').filter((part) => /^(evaluation loss|training loss|the loss)/.test(part)).join('; ');
  function asValue(text) {
    if (text === undefined) return null;
    return text !== '' && isFinite(Number(text)) ? Number(text) : text;
  }

  // A result of the runs over each setting in which they differ: what a sweep has shown.
  function influence() {
    const results = ['eval_loss', 'eval_accuracy', 'best_eval_loss', 'loss', 'accuracy', 'seconds', 'peak_rss_mib']
      .filter((key) => runs.filter((run) => key in run.figures).length >= 5);
    const valuesOf = (key) => runs.map((run) => asValue(run.settings[key]));
    const readable = (i) => Object.keys(runs[i].settings).length > 0;
    const keys = report.differing.filter((key) => key !== 'seed' && new Set(valuesOf(key)).size >= 2).slice(0, 24);
    if (!results.length || !keys.length) return null;
    state.result = results[0];
    const redrawHere = () => { for (const entry of charts) if (entry.make && entry.chart) draw(entry); };
    const select = el('select', { id: 'result', onchange: (event) => { state.result = event.target.value; redrawHere(); } },
      results.map((key) => el('option', { value: key }, key)));
    const grid = el('div', { class: 'charts' });
    for (const key of keys) {
      const values = valuesOf(key);
      const known = values.filter((_, i) => readable(i));
      const numeric = known.every((value) => typeof value === 'number');
      const names = [...new Set(known.map(String))];
      const [least, most] = [Math.min(...known), Math.max(...known)];
      const type = !numeric ? 'category' : least > 0 && most / least >= 30 ? 'logarithmic' : 'linear';
      const canvas = el('canvas', { role: 'img' });
      const make = () => {
        const data = runs.map((run, i) => ({ x: numeric ? values[i] : String(values[i]), y: run.figures[state.result], i }))
          .filter((point) => readable(point.i) && point.y !== undefined && point.y !== null);
        canvas.setAttribute('aria-label', `${state.result} of ${data.length} runs by ${key}`);
        // The worst tenth of the losses would press the others together: they are drawn at the border.
        const sorted = data.map((point) => point.y).sort((a, b) => a - b);
        const most = sorted[Math.floor(0.9 * (sorted.length - 1))];
        if (/loss/.test(state.result) && most > sorted[0]) for (const point of data) point.y = Math.min(point.y, most);
        const style = options(key);
        return {
          type: 'scatter',
          data: { datasets: [{ data, pointRadius: 4, pointBackgroundColor: data.map((point) => color(point.i)) }] },
          options: {
            animation: false, maintainAspectRatio: false,
            scales: { x: { type, labels: numeric ? undefined : names, offset: !numeric, grid: style.scales.x.grid, ticks: style.scales.x.ticks }, y: { grid: style.scales.y.grid, ticks: style.scales.y.ticks } },
            plugins: { legend: { display: false }, tooltip: { callbacks: { label: ({ raw }) => `${runs[raw.i].name}: ${number(runs[raw.i].figures[state.result])} at ${raw.x}` } } },
          },
        };
      };
      grid.append(el('figure', {}, el('figcaption', {}, key), el('div', { class: 'canvas' }, canvas)));
      charts.push({ key, canvas, chart: null, make });
      watcher.observe(canvas);
    }
    return section('Results by setting', el('div', { class: 'controls' }, el('label', { for: 'result' }, 'result ', select)), grid);
  }

  function classes(run) {
    const found = run.classes;
    if (!found) return [];
    const scores = found.classes.map((row) => [row.class, row.precision, row.recall, bar(row.f1, 1, number(row.f1)), row.support]);
    const out = [table(['class', 'precision', 'recall', 'F1', 'support'], scores, { class: 'classes' })];
    if (!found.confusion) return out;
    const names = found.classes.map((row) => row.class);
    const mistakes = [];
    found.confusion.forEach((row, i) => row.forEach((n, j) => { if (i !== j && n > 0) mistakes.push([names[i], names[j] ?? String(j), n]); }));
    mistakes.sort((a, b) => b[2] - a[2]);
    if (names.length <= 30) {
      const head = el('tr', {}, el('th', { scope: 'col' }, 'true \\ predicted'), found.confusion[0].map((_, j) => el('th', { scope: 'col', class: 'number' }, names[j] ?? String(j))));
      const rows = found.confusion.map((row, i) => {
        const total = row.reduce((a, b) => a + b, 0) || 1;
        return el('tr', {}, el('th', { scope: 'row' }, names[i]), row.map((n, j) =>
          el('td', { style: n ? `background:rgba(var(--heat),${(0.08 + 0.7 * n / total).toFixed(3)})` : null, title: `${n} of ${names[i]} taken for ${names[j] ?? j}` }, n || '')));
      });
      out.push(el('h3', {}, 'Confusion matrix'), el('div', { class: 'wide' }, el('table', { class: 'matrix' }, el('thead', {}, head), el('tbody', {}, rows))));
    }
    if (mistakes.length) out.push(el('h3', {}, 'Most frequent mistakes'), table(['true', 'predicted', 'samples'], mistakes.slice(0, 10)));
    return out;
  }
  function predictions(run) {
    const found = run.predictions;
    if (!found) return [];
    const wrong = (row) => row.target !== undefined && row.class !== undefined && row.target !== row.class;
    if (found.images.length) {
      return [el('div', { class: 'gallery' }, found.rows.slice(0, found.images.length).map((row, i) => el('div', {},
        el('img', { src: found.images[i], alt: `sample ${row.sample}` }),
        el('div', { class: wrong(row) ? 'wrong' : null }, `${row.class ?? row.prediction ?? ''}${wrong(row) ? `, not ${row.target}` : ''}`,
          row.probability !== undefined ? el('span', { class: 'weak' }, ` ${(100 * row.probability).toFixed(0)} %`) : null))))];
    }
    const columns = [...new Set(found.rows.flatMap((row) => Object.keys(row)))];
    const cell = (value) => (Array.isArray(value) || (value && typeof value === 'object') ? JSON.stringify(value) : value);
    return [table(columns, found.rows.map((row) => columns.map((key) => key === 'class' && wrong(row) ? el('span', { class: 'wrong' }, String(row[key])) : cell(row[key]))))];
  }
  function texts(run) {
    if (!run.texts.length) return [];
    return [table(['step', 'prompt', 'text'], run.texts.map((row) => [row.step, row.prompt, row.text]))];
  }
  // The live bytes over the calls of a step, in a color for each phase, and what they are at the peak.
  function timeline(found) {
    const { at, bytes: live, what, phases, peak } = found;
    if (!at.length) return [];
    const said = `Peak: ${bytes(peak.bytes)} in ${peak.what}`, end = at[at.length - 1] + 1;
    const canvas = el('canvas', { role: 'img', 'aria-label': `Live memory over ${end} calls. ${said}` });
    const phaseOf = (call) => phases.findLastIndex((phase) => phase.from <= call);
    const make = () => {
      const { y: { grid, ticks } } = options('').scales;
      return {
        type: 'line',
        data: { datasets: phases.map((phase, k) => ({
          label: phase.name, stepped: 'after', fill: 'origin', pointRadius: 0, borderWidth: 1.2, borderColor: color(k), backgroundColor: color(k) + '40',
          // A phase goes on to the first call of the next one.
          data: at.flatMap((call, i) => (phaseOf(call) === k || (i > 0 && phaseOf(at[i - 1]) === k) ? [{ x: call, y: live[i], i }] : [])),
        })) },
        options: {
          animation: false, parsing: false, maintainAspectRatio: false, interaction: { mode: 'nearest', axis: 'x', intersect: false },
          scales: { x: { type: 'linear', grid, ticks, max: end }, y: { type: 'linear', grid, ticks: { ...ticks, callback: bytes }, min: 0 } },
          plugins: { legend: { labels: { color: ticks.color, boxWidth: 12 } },
            tooltip: { filter: (item, index) => index === 0, callbacks: { title: () => '', label: ({ raw }) => `${what[raw.i]}: ${bytes(raw.y)}` } } },
        },
      };
    };
    charts.push({ key: 'timeline', canvas, chart: null, make });
    watcher.observe(canvas);
    return [
      el('figure', {}, el('figcaption', {}, 'Activations and workspaces over the calls of a micro-batch'), el('div', { class: 'canvas' }, canvas)),
      el('p', {}, said),
      table(['live at the peak', 'memory'], peak.largest.map((part) => [part.what, bar(part.bytes, peak.bytes, bytes(part.bytes))]), { class: 'peak' }),
    ];
  }
  const roofline = (run) => (run.roofline ? [el('img', { src: run.roofline, style: 'max-width: 100%', alt: 'The ops of the step under the roofline of the machine' })] : []);
  function model(run) {
    const found = run.model;
    if (found.problem) return [el('p', { class: 'weak' }, 'The model cannot be planned here: ' + found.problem)];
    const most = (key) => Math.max(...found.layers.map((layer) => layer[key]));
    const [parameters, activations] = [most('parameters'), most('activation_bytes')];
    const name = (layer) => layer.name + (layer.copies > 1 ? ` ×${layer.copies}` : '');
    const total = found.memory.reduce((sum, part) => sum + part.bytes, 0);
    return [
      el('p', {}, `${found.parameters.toLocaleString('en')} parameters; ${found.inputs} → ${found.output}; ${count(found.flops_per_step)}FLOP and ${found.kernel_calls} kernel calls a step on ${found.device}`),
      el('details', { open: found.layers.length <= 24 ? '' : false }, el('summary', {}, `${found.layers.length} layers`),
        table(['layer', 'parameters', 'activations', 'forward FLOP', 'backward FLOP'], found.layers.map((layer) => [name(layer),
          bar(layer.parameters, parameters, count(layer.parameters)), bar(layer.activation_bytes, activations, bytes(layer.activation_bytes)),
          el('span', {}, count(layer.forward_flops)), el('span', {}, count(layer.backward_flops))]), { class: 'layers' })),
      el('h3', {}, `Memory of one rank: ${bytes(total)}, and ${bytes(found.host_memory)} of other host memory`),
      el('div', { class: 'stack', role: 'img', 'aria-label': found.memory.map((part) => `${part.what} ${bytes(part.bytes)}`).join(', ') },
        found.memory.map((part, i) => el('div', { style: `width:${(100 * part.bytes / total).toFixed(2)}%;background:${color(i)}`, title: `${part.what}: ${bytes(part.bytes)}` }))),
      el('div', { class: 'key' }, found.memory.map((part, i) => el('span', {}, el('span', { class: 'swatch', style: `background:${color(i)}` }), `${part.what} ${bytes(part.bytes)}`))),
      ...timeline(found.timeline),
    ];
  }
  function settings() {
    if (many) {
      const rows = report.differing.map((key) => [key, ...runs.map((run) => asValue(run.settings[key]))]);
      const all = runs.map((run) => el('details', {}, el('summary', {}, run.name), el('pre', {}, run.config)));
      return [rows.length ? table(['setting', ...runs.map((run) => run.name)], rows, { id: 'differences' }) : el('p', {}, 'All runs have the same settings.'), ...all];
    }
    return [el('details', {}, el('summary', {}, 'config.yaml'), el('pre', {}, runs[0].config))];
  }
  function reproduction(run) {
    if (!run.attempts.length) return [];
    const date = (seconds) => new Date(1000 * seconds).toISOString().slice(0, 19).replace('T', ' ') + ' UTC';
    const rows = run.attempts.map((a) => [a.attempt, date(a.time), a.host, a.device, a.revision, a.ranks, a.threads, a.command]);
    return [el('pre', {}, 'dltrain runs reproduce ' + run.quoted), table(['start', 'time', 'host', 'device', 'revision', 'ranks', 'threads', 'command'], rows)];
  }
  // A part for each run that has it; with several runs each folds away.
  function perRun(title, make) {
    const parts = runs.map((run) => [run, make(run)]).filter(([, parts]) => parts.length);
    if (!parts.length) return null;
    if (!many) return section(title, parts[0][1]);
    return section(title, parts.map(([run, children]) => el('details', {}, el('summary', {}, run.name), children)));
  }

  function setTheme(theme) {
    root.dataset.theme = theme;
    build();
  }
  function build() {
    for (const entry of charts) if (entry.chart) entry.chart.destroy();
    charts.length = 0;
    watcher.disconnect();
    document.title = report.title;
    if (state.x === 'step' && !runs.some((run) => run.train.columns.step || run.eval.columns.step)) state.x = 'time';
    document.getElementById('page').replaceChildren(...[
      ...header(), runs.length >= 5 ? influence() : null, many ? overview() : null, curves(),
      perRun('Classes', classes), perRun('Predictions', predictions), perRun('Generated text', texts), perRun('Model and memory', model), perRun('Roofline', roofline),
      section('Configuration', ...settings()), many ? null : overview(), perRun('How it was made', reproduction),
      el('p', { class: 'weak' }, `dltrain report, ${report.dltrain} (${report.revision})`),
    ].filter((part) => part !== null));
    root.dataset.ready = 'yes';
  }
  // Shows the progress of a run that is served by `dltrain watch`.
  function update(fresh) {
    const tables = () => JSON.stringify([curveKeys(), runs[0].status, runs[0].classes, runs[0].texts]);
    const before = tables();
    Object.assign(runs[0], fresh);
    if (tables() !== before) build();
    document.querySelector('.verdict').replaceWith(verdict(runs[0]));
    document.querySelector('[aria-labelledby="figures"] details').replaceChildren(...overview().querySelector('details').children);
    for (const entry of charts) if (entry.chart && !entry.make) draw(entry);
  }
  async function follow() {
    const fresh = await fetch('data.json', { cache: 'no-store' }).then((answer) => (answer.ok ? answer.json() : null)).catch(() => null);
    if (fresh) update(fresh);
    document.getElementById('live').textContent = fresh ? ' · follows the run' : ' · dltrain watch does not answer';
    setTimeout(follow, 1000 * report.refresh);
  }
  window.dltrainReport = { charts, state, drawAll, zoom };
  window.addEventListener('beforeprint', drawAll);
  setTheme(matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light');
  if (report.refresh) follow();
})();
