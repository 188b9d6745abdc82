// Charts: axes fit the visible runs. `lbx/report/draw/charts.py` describes their data.
{
  const GAP = 13, pairs = /(-?[\d.]+) (-?[\d.]+)/g;
  let charts, sizes; // read when runs are first hidden
  const removed = new Map();
  const readCharts = (part) => all("svg.chart:has(.ticks[data-values])", part).map((svg) => ({
    svg,
    axes: all(".ticks[data-values]", svg).map(readAxis),
    nodes: all("g[class*=' r'] :is(.mark:not(.key), .line, .band, .whisker), .front", svg).map((node) => {
      const attribute = node.hasAttribute("transform") ? "transform" : "d";
      return { node, attribute, text: node.getAttribute(attribute) };
    }),
    names: all("g[class*=' r']:not(.key) > .name", svg).map((node) => ({ node, x: +node.getAttribute("x"), y: +node.getAttribute("y") })),
  }));

  function readAxis(group) {
    const [first, last] = group.dataset.pixels.split(" ").map(Number), [low, high] = group.dataset.values.split(" ").map(Number);
    const at = group.classList.contains("x") ? 0 : 1, line = group.querySelector("path"), label = group.querySelector("text");
    const ends = line.getAttribute("d").match(pairs).map((pair) => pair.split(" ").map(Number));
    const place = { x: +label.getAttribute("x"), y: +label.getAttribute("y") };
    return { group, at, first, last, low, high, start: low, stop: high, line, label, ends, place };
  }
  const toPixel = (axis, value) => axis.first + ((axis.last - axis.first) * (value - axis.start)) / (axis.stop - axis.start);
  const toValue = (axis, pixel) => axis.low + ((axis.high - axis.low) * (pixel - axis.first)) / (axis.last - axis.first);

  // Round ticks, as `svg.axis` chooses them.
  function roundTicks(low, high, most) {
    if (low === high) [low, high] = [low - (Math.abs(low) / 10 || 0.5), high + (Math.abs(high) / 10 || 0.5)];
    const rough = (high - low) / most, base = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 2.5, 5, 10].map((factor) => factor * base).find((size) => size >= rough * 0.999);
    const first = Math.floor(low / step + 1e-9), last = Math.ceil(high / step - 1e-9);
    return Array.from({ length: last - first + 1 }, (_, i) => +((first + i) * step).toPrecision(12));
  }

  // Rows move up in place of hidden ones; `removed` is the height that a chart loses.
  const readSizes = (part) => all("svg.chart:has(.rows)", part).map((svg) => [svg, svg.viewBox.baseVal.height]);
  function restack(svg, height) {
    let lost = 0;
    for (const rows of all(".rows", svg)) {
      const [tall, gap] = rows.dataset.tall.split(" ").map(Number), lines = all(":scope > .row", rows);
      let hidden = 0;
      for (const line of lines) {
        if (line.matches(".off")) hidden++;
        else line.setAttribute("transform", `translate(0 ${-tall * hidden})`);
      }
      const isEmpty = hidden === lines.length;
      rows.setAttribute("transform", `translate(0 ${-lost})`);
      rows.toggleAttribute("hidden", isEmpty);
      lost += tall * hidden + (isEmpty ? gap : 0);
    }
    svg.setAttribute("viewBox", `0 0 ${svg.viewBox.baseVal.width} ${height - lost}`);
    svg.setAttribute("height", height - lost);
    removed.set(svg, lost);
  }

  // Charts of one grid have equal axes.
  function rescale(event) {
    // The line of unbeaten runs is of all runs.
    for (const front of all("svg .front")) front.classList.toggle("off", event.detail?.hidden.length > 0);
    charts ??= readCharts($("main"));
    sizes ??= new Map(readSizes($("main")));
    sizes.forEach((height, svg) => restack(svg, height));
    const groups = Map.groupBy(charts, ({ svg }) => svg.closest(".charts") ?? svg);
    for (const group of groups.values()) {
      for (const at of [0, 1]) fitAxes(group, at);
      group.forEach(draw);
    }
  }

  function fitAxes(group, at) {
    const axes = group.flatMap((chart) => chart.axes.filter((axis) => axis.at === at)), values = [];
    for (const { axes, nodes } of group) {
      const axis = axes.find((axis) => axis.at === at);
      if (!axis) continue;
      if ("zero" in axis.group.dataset) values.push(0);
      for (const { node, text } of nodes) {
        if (node.closest(".off")) continue;
        for (const pair of text.matchAll(pairs)) values.push(toValue(axis, +pair[at + 1]));
      }
    }
    if (!values.length) return;
    if (axes.every((axis) => axis.low === 0 && axis.high === 100)) return; // percent
    const low = Math.min(...values), high = Math.max(...values), slack = Math.min(1e-3, (high - low) / 2);
    const ticks = roundTicks(low + slack, high - slack, at ? 5 : 7);
    for (const axis of axes) {
      [axis.start, axis.stop, axis.ticks] = [ticks[0], ticks.at(-1), ticks];
    }
  }

  function draw({ svg, axes, nodes, names }) {
    svg.classList.toggle("few", all("g:not(.off) > .band", svg).length <= 2);
    const moved = (at, pixel) => {
      const axis = axes.find((axis) => axis.at === at);
      return axis ? toPixel(axis, toValue(axis, pixel)) : pixel;
    };
    for (const { node, attribute, text } of nodes) {
      node.setAttribute(attribute, text.replace(pairs, (_, x, y) => `${moved(0, +x).toFixed(1)} ${moved(1, +y).toFixed(1)}`));
    }
    for (const axis of axes) if (axis.ticks) drawTicks(axis, removed.get(svg) ?? 0);
    placeNames(svg, names, axes);
  }

  function drawTicks({ group, at, ticks, line, label, ends, place, ...axis }, removed) {
    const coordinate = at ? "y" : "x", shift = at ? place.y - ends[0][1] : 0;
    group.replaceChildren(...ticks.flatMap((value) => {
      const pixel = toPixel(axis, value), path = line.cloneNode(), text = label.cloneNode();
      const points = at ? ends.map(([x]) => [x, pixel]) : ends.map(([, y], i) => [pixel, y - (i && removed)]);
      path.setAttribute("d", "M" + points.map((point) => point.map((value) => value.toFixed(1)).join(" ")).join("L"));
      path.setAttribute("class", value === 0 && "zero" in group.dataset ? "axis" : "grid");
      text.setAttribute(coordinate, (pixel + shift).toFixed(1));
      if (!at) text.setAttribute("y", place.y - removed);
      const digits = Math.max(3, Math.floor(Math.log10(Math.abs(value))) + 1); // whole parts are complete
      text.textContent = value.toLocaleString("en", { maximumSignificantDigits: digits });
      return [path, text];
    }));
  }

  // Names move with their marks; those at the ends of lines keep their distance from each other.
  function placeNames(svg, names, axes) {
    const ends = [];
    for (const { node, x, y } of names) {
      const group = node.parentNode, marks = all(".mark:not(.key)", group), leader = group.querySelector(".leader");
      if (group.matches(".off") || !marks.length) continue;
      const at = marks.at(-1).getAttribute("transform").match(/-?[\d.]+/g).map(Number);
      if (leader) ends.push({ node, leader, key: group.querySelector(".key"), x, at, y: at[1] });
      else {
        const { text } = charts.find((chart) => chart.svg === svg).nodes.find((entry) => entry.node === marks[0]);
        const before = text.match(/-?[\d.]+/g).map(Number);
        node.setAttribute("x", x + at[0] - before[0]);
        node.setAttribute("y", y + at[1] - before[1]);
      }
    }
    const axis = axes.find(({ at }) => at === 1);
    ends.sort((a, b) => a.y - b.y);
    const places = spread(ends.map(({ y }) => y), axis?.last + 2, axis?.first);
    ends.forEach(({ node, leader, key, x, at }, i) => {
      node.setAttribute("y", places[i] + 4);
      key.setAttribute("transform", `translate(${x - 9} ${places[i]})`);
      leader.setAttribute("d", `M${at[0] + 6} ${at[1]}L${x - 16} ${places[i]}`);
    });
  }

  // The same as `chart_labels.spread`.
  function spread(targets, low, high) {
    const blocks = [];
    targets.forEach((target, i) => {
      let mean = target - GAP * i, count = 1;
      while (blocks.length && blocks.at(-1).mean > mean) {
        const block = blocks.pop();
        mean = (mean * count + block.mean * block.count) / (count + block.count);
        count += block.count;
      }
      blocks.push({ mean, count });
    });
    const most = high - GAP * (targets.length - 1);
    return blocks.flatMap(({ mean, count }) => Array(count).fill(mean)).map((mean, i) => Math.max(Math.min(mean, most), low) + GAP * i);
  }

  document.addEventListener("runschange", rescale);
  setUps.push((part) => {
    charts?.push(...readCharts(part));
    for (const [svg, height] of sizes ? readSizes(part) : []) sizes.set(svg, height);
  });
}
