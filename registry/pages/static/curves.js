// Draws what a run reports as curves, one chart a quantity, and adds what has come since whenever the page is
// refreshed. The charts stay (hx-preserve), and with them what a person has zoomed into.
"use strict";

(() => {
  const HEIGHT = 190;
  const COLOURS = ["--accent", "--good", "--warn", "--bad"];
  const place = document.getElementById("curves");
  if (place === null) return;
  const box = place.querySelector("[data-charts]");
  const isLog = place.querySelector("[name=log]");
  const sets = place.dataset.curves.split(" ").map((address) => ({ address, after: 0, points: new Map() }));
  const charts = new Map();
  // The first chart has the whole width until the next one comes: charts follow their holders, not the window.
  const sizes = new ResizeObserver(() => {
    for (const { holder, plot } of charts.values()) {
      if (holder.clientWidth > 0 && holder.clientWidth !== plot.width) {
        plot.setSize({ width: holder.clientWidth, height: HEIGHT });
      }
    }
  });
  let isBusy = false;
  let isDue = false;

  function colour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  // train_loss and eval_loss belong on one chart.
  function quantity(name) {
    return name.replace(/^(train|eval|val|test)[_/]/, "");
  }

  async function fetchNew(set) {
    for (;;) {
      const answer = await fetch(`${set.address}?after=${set.after}`);
      if (!answer.ok) return;
      const { after, points, more } = await answer.json();
      for (const [step, numbers] of points) {
        for (const [name, value] of Object.entries(numbers)) {
          if (!set.points.has(name)) set.points.set(name, new Map());
          set.points.get(name).set(step, value); // a later attempt repeats steps of the one before
        }
      }
      set.after = after;
      if (!more) return;
    }
  }

  function grouped() {
    const groups = new Map();
    for (const set of sets) {
      for (const [name, steps] of set.points) {
        const group = quantity(name);
        if (!groups.has(group)) groups.set(group, []);
        groups.get(group).push({ label: name, steps });
      }
    }
    return new Map([...groups].sort(([a], [b]) => (a !== "loss") - (b !== "loss") || a.localeCompare(b)));
  }

  function table(lines) {
    const steps = [...new Set(lines.flatMap((line) => [...line.steps.keys()]))].sort((a, b) => a - b);
    const keep = (value) => (value === undefined || value === null || (isLog.checked && value <= 0) ? null : value);
    return [steps, ...lines.map((line) => steps.map((step) => keep(line.steps.get(step))))];
  }

  function shown(value) {
    return value === null || value === undefined ? "–" : Number(value.toPrecision(4)).toString();
  }

  function options(group, lines, width) {
    const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
    return {
      title: group.replaceAll("_", " "),
      width, height: HEIGHT,
      scales: { x: { time: false }, y: { distr: isLog.checked ? 3 : 1 } },
      cursor: { sync: { key: "curves", scales: ["x", null] } },
      axes: [axis, { ...axis, size: 62, values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : shown(tick))) }],
      series: [
        { label: "step" },
        ...lines.map((line, at) => ({
          label: line.label, stroke: colour(COLOURS[at % COLOURS.length]), width: 2, spanGaps: true,
          value: (_, value) => shown(value),
          points: { show: line.steps.size < 2 },
        })),
      ],
    };
  }

  function draw() {
    const groups = grouped();
    place.hidden = groups.size === 0;
    for (const [group, lines] of groups) {
      const key = lines.map((line) => line.label).join("\n") + isLog.checked + (lines[0].steps.size < 2);
      const known = charts.get(group);
      const values = table(lines);
      const last = lines.map((line) => `${line.label} ${shown([...line.steps.values()].at(-1))}`).join(", ");
      const holder = known ? known.holder : document.createElement("div");
      holder.setAttribute("role", "img");
      holder.setAttribute("aria-label", `${last} at step ${values[0].at(-1)}, ${values[0].length} points`);
      if (known && known.key === key) {
        const { min, max } = known.plot.scales.x;
        const before = known.plot.data[0];
        const isWhole = min <= before[0] && max >= before.at(-1);
        known.plot.setData(values, isWhole);
        if (!isWhole) known.plot.redraw();
        continue;
      }
      if (known) known.plot.destroy();
      else {
        holder.className = "chart";
        box.append(holder);
        sizes.observe(holder);
      }
      charts.set(group, { holder, key, plot: new uPlot(options(group, lines, holder.clientWidth), values, holder) });
    }
  }

  async function refresh() {
    isDue = true;
    if (isBusy) return;
    isBusy = true;
    try {
      while (isDue) {
        isDue = false;
        for (const set of sets) await fetchNew(set);
        draw();
      }
    } catch {
      // The page says by itself that the connection is lost; the next refresh asks again.
    } finally {
      isBusy = false;
    }
  }

  function again() {
    for (const chart of charts.values()) chart.plot.destroy();
    charts.clear();
    sizes.disconnect();
    box.replaceChildren();
    draw();
  }

  isLog.addEventListener("change", again);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  document.body.addEventListener("htmx:afterSwap", refresh);
  refresh();
})();
