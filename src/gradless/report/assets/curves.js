// The curves of one run or of several on the same axes, and the choice of axes.

const AXES = {
  x: {
    legend: "against",
    name: "x",
    choices: [
      ["step", "steps"],
      ["evaluations", "evaluations"],
      ["samples", "samples"],
      ["seconds", "time"],
    ],
  },
  xLog: {
    legend: "horizontal axis",
    name: "xlog",
    choices: [
      ["linear", "linear"],
      ["log", "log"],
    ],
  },
  yLog: {
    legend: "vertical axis",
    name: "ylog",
    choices: [
      ["auto", "auto"],
      ["linear", "linear"],
      ["log", "log"],
    ],
  },
};
const chosen = { x: "step", xLog: "linear", yLog: "auto" };
const X_LABELS = { step: "step n", evaluations: "evaluations of the loss", samples: "samples seen" };
const charts = new Map();

function controls(choose) {
  const bar = element("form", { class: "controls", "aria-label": "Axes" });
  for (const [key, axis] of Object.entries(AXES)) {
    const set = element("fieldset", {}, element("legend", {}, axis.legend));
    const group = element("div", { class: "choice" });
    for (const [value, words] of axis.choices) {
      const input = element("input", { type: "radio", name: axis.name, id: axis.name + "-" + value, value });
      input.checked = chosen[key] === value;
      input.addEventListener("change", () => {
        chosen[key] = value;
        choose();
      });
      group.append(input, element("label", { for: input.id }, words));
    }
    set.append(group);
    bar.append(set);
  }
  return bar;
}

// An outside program is not known to read samples: what no run has is not offered.
function offerAbscissas(runs) {
  for (const [value] of AXES.x.choices) {
    const input = byId("x-" + value);
    const isThere = runs.some((run) => (run.curves.x[value] || []).length > 0);
    for (const node of [input, ...input.labels]) node.hidden = !isThere;
  }
}

function abscissaOf(run, unit) {
  const x = run.curves.x[chosen.x] || [];
  return chosen.x === "seconds" ? x.map((v) => (isNumber(v) ? v / unit[1] : null)) : x;
}

function specsOf(runs) {
  const several = runs.length > 1;
  const longest = Math.max(0, ...runs.map((run) => (run.curves.x.seconds || []).at(-1) || 0));
  const unit = timeUnit(longest);
  const xLabel = chosen.x === "seconds" ? `time (${unit[0]})` : X_LABELS[chosen.x];
  const names = new Map();
  for (const run of runs) for (const one of run.curves.series) if (!names.has(one.name)) names.set(one.name, one);
  const specs = [];
  for (const [name, like] of names) {
    const lines = [];
    runs.forEach((run, slot) => {
      const one = run.curves.series.find((other) => other.name === name);
      if (!one) return;
      const label = several ? run.label : one.low ? "median" : one.label;
      const thin = several ? [] : one.chains;
      lines.push({ label, x: abscissaOf(run, unit), y: one.y, low: one.low, high: one.high, thin, slot });
    });
    const hint = lines.some((line) => line.low) ? "median, and the band that holds 8 in 10 chains" : "";
    specs.push({
      key: name,
      title: sentence(like.label),
      hint,
      xLabel,
      xName: chosen.x === "seconds" ? unit[0] : chosen.x,
      lines,
      xLog: chosen.xLog === "log",
      yLog: chosen.yLog === "auto" ? (like.is_fraction ? false : "auto") : chosen.yLog === "log",
      yZero: like.is_fraction,
      height: name === "loss" ? 300 : 240,
    });
  }
  const pairs = [];
  runs.forEach((run, slot) => {
    const pair = run.curves.by_loss;
    if (pair)
      pairs.push({
        label: several ? run.label : "acceptance",
        x: pair.loss,
        y: pair.acceptance,
        slot,
        dots: true,
      });
  });
  if (pairs.length) {
    specs.push({
      key: "by-loss",
      title: "Acceptance against loss",
      hint: "as in Fig. 2 of the paper",
      xLabel: "loss U",
      xName: "U",
      lines: pairs,
      xLog: "auto",
      yLog: chosen.yLog === "auto" ? "auto" : chosen.yLog === "log",
      yZero: true,
      height: 240,
    });
  }
  return specs;
}

function sentence(words) {
  return words.charAt(0).toUpperCase() + words.slice(1);
}

function drawCurves(runs) {
  offerAbscissas(runs);
  const grid = byId("curves");
  const specs = specsOf(runs);
  for (const spec of specs) {
    if (!charts.has(spec.key)) charts.set(spec.key, new Chart(grid));
    charts.get(spec.key).update(spec);
  }
  for (const [key, chart] of charts) chart.figure.hidden = !specs.some((spec) => spec.key === key);
  byId("no-curves").hidden = specs.length > 0;
}
