// The page: one run, several compared, or the list of a folder; drawn once, or again whenever the server says so.

const AXES = {
  x: { legend: "against", name: "x", choices: [["step", "steps"], ["samples", "samples"], ["seconds", "time"]] },
  xLog: { legend: "horizontal axis", name: "xlog", choices: [["linear", "linear"], ["log", "log"]] },
  yLog: { legend: "vertical axis", name: "ylog", choices: [["auto", "auto"], ["linear", "linear"], ["log", "log"]] },
};
const chosen = { x: "step", xLog: "linear", yLog: "auto" };
const X_LABELS = { step: "step n", samples: "samples seen" };
const charts = new Map();
const drawn = new Map();
let data = null;

function byId(id) { return document.getElementById(id); }

// Builds a part of the page again only if what it shows has changed, so that nothing is lost that a reader opened.
function piece(parent, name, value, build) {
  const text = JSON.stringify(value);
  const old = drawn.get(name);
  if (old && old.text === text) { parent.append(old.node); return; }
  const node = build();
  if (old) old.node.replaceWith(node); else parent.append(node);
  drawn.set(name, { text, node });
}

function controls() {
  const bar = element("form", { class: "controls", "aria-label": "Axes" });
  for (const [key, axis] of Object.entries(AXES)) {
    const set = element("fieldset", {}, element("legend", {}, axis.legend));
    const group = element("div", { class: "choice" });
    for (const [value, words] of axis.choices) {
      const input = element("input", { type: "radio", name: axis.name, id: axis.name + "-" + value, value });
      input.checked = chosen[key] === value;
      input.addEventListener("change", () => { chosen[key] = value; drawCurves(); });
      group.append(input, element("label", { for: input.id }, words));
    }
    set.append(group);
    bar.append(set);
  }
  return bar;
}

function abscissaOf(run, unit) {
  const x = run.curves.x[chosen.x] || run.curves.x.step || [];
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
      lines.push({ label, x: abscissaOf(run, unit), y: one.y, low: one.low, high: one.high, thin, slot: slot % 8 });
    });
    const fan = !several && like.low ? " (median and the band of 8 in 10 chains)" : "";
    specs.push({
      key: name, title: sentence(like.label) + fan, xLabel, xName: chosen.x === "seconds" ? unit[0] : chosen.x, yLabel: like.label, lines,
      xLog: chosen.xLog === "log", yLog: chosen.yLog === "auto" ? (like.is_fraction ? false : "auto") : chosen.yLog === "log",
      yZero: like.is_fraction, height: name === "loss" ? 300 : 240,
    });
  }
  const pairs = [];
  runs.forEach((run, slot) => {
    const pair = run.curves.by_loss;
    if (pair) pairs.push({ label: several ? run.label : "acceptance", x: pair.loss, y: pair.acceptance, slot: slot % 8, dots: true });
  });
  if (pairs.length) {
    specs.push({
      key: "by-loss", title: "Acceptance against loss", xLabel: "loss U", xName: "U", yLabel: "acceptance A", lines: pairs,
      xLog: "auto", yLog: chosen.yLog === "auto" ? "auto" : chosen.yLog === "log", yZero: true, height: 240,
    });
  }
  return specs;
}

function sentence(words) { return words.charAt(0).toUpperCase() + words.slice(1); }

function drawCurves() {
  const grid = byId("curves");
  const specs = specsOf(data.runs);
  for (const spec of specs) {
    if (!charts.has(spec.key)) charts.set(spec.key, new Chart(grid));
    charts.get(spec.key).update(spec);
  }
  for (const [key, chart] of charts) chart.figure.hidden = !specs.some((spec) => spec.key === key);
  byId("no-curves").hidden = specs.length > 0;
}

function drawRuns() {
  const runs = data.runs;
  const main = byId("main");
  labelRuns(runs);
  if (!byId("curves")) {
    main.replaceChildren(
      element("div", { id: "top" }),
      section("Course", controls(), element("p", { id: "no-curves", class: "note" }, "There is no record to draw yet."), element("div", { id: "curves", class: "grid curves" })),
      element("div", { id: "rest" }));
  }
  if (runs.length === 1) drawOne(runs[0]); else drawSeveral(runs);
  drawCurves();
}

function labelRuns(runs) {
  for (const run of runs) {
    const isAlone = runs.filter((other) => other.name === run.name).length === 1;
    run.label = isAlone ? run.name : run.path;
  }
}

function drawOne(run) {
  byId("title").textContent = run.name;
  byId("subtitle").textContent = [run.problem, run.algorithm, run.num_chains > 1 ? `${run.num_chains} chains` : ""].filter(Boolean).join("  ·  ");
  byId("verdict").textContent = run.verdict;
  piece(byId("notes"), "notes", run.notes, () => element("div", {}, ...notesOf(run.notes)));
  showState(run);
  piece(byId("top"), "tiles", run.numbers, () => tilesOf(run.numbers));
  for (const [name, value, build] of partsOf(run)) piece(byId("rest"), name, value, () => section(name, build()));
}

function showState(run) {
  const state = byId("state");
  state.textContent = run.state;
  state.className = "state " + run.state;
  const bar = byId("progress");
  bar.hidden = run.state !== "running" || !run.steps || run.step === null;
  if (!bar.hidden) { bar.max = run.steps; bar.value = run.step; }
  drawClock();
}

function drawSeveral(runs) {
  const known = runs.filter((run) => run.numbers.length);
  const problems = [...new Set(runs.map((run) => run.problem))];
  byId("subtitle").textContent = problems.join(", ");
  const best = known.reduce((a, b) => (lossOf(b) < lossOf(a) ? b : a), known[0]);
  byId("verdict").textContent = problems.length > 1 ? "The runs are of different problems, so their losses do not compare."
    : best ? `The lowest loss U at the end is that of ${best.label}: ${best.numbers[0].value}.` : "None of the runs has a record to show.";
  const labels = [...new Set(runs.flatMap((run) => run.numbers.map((one) => one.label)))];
  const rows = runs.map((run) => [run.label, ...(problems.length > 1 ? [run.problem] : []), run.algorithm, run.state,
    ...labels.map((label) => (run.numbers.find((one) => one.label === label) || { value: "–" }).value)]);
  piece(byId("top"), "table", rows, () => tableOf(["run", ...(problems.length > 1 ? ["problem"] : []), "algorithm", "state", ...labels], rows, "The runs"));
  const rest = byId("rest");
  piece(rest, "settings", runs.map((run) => run.settings), () => section("Settings", differences(runs)));
  runs.forEach((run, place) => piece(rest, "run " + place, [run.verdict, run.notes, run.commands, run.outputs, run.images], () => {
    const body = element("details", { class: "run" }, element("summary", {}, run.label), element("p", {}, run.verdict), ...notesOf(run.notes));
    for (const [name, , build] of partsOf(run)) body.append(element("h3", {}, name), build());
    return body;
  }));
}

function lossOf(run) {
  const one = run.curves.series.find((series) => series.name === "loss");
  const known = one ? one.y.filter(isNumber) : [];
  return known.length ? known[known.length - 1] : Infinity;
}

// Settings in which the runs differ, and under a heading to open those in which they do not.
function differences(runs) {
  const tables = runs.map((run) => new Map(run.settings));
  const names = [...new Set(tables.flatMap((table) => [...table.keys()]))];
  const differs = (name) => new Set(tables.map((table) => table.get(name))).size > 1;
  const part = (chosenNames, title) => tableOf(["setting", ...runs.map((run) => run.label)],
    chosenNames.map((name) => [name, ...tables.map((table) => table.get(name) ?? "–")]), title);
  const same = names.filter((name) => !differs(name)), other = names.filter(differs);
  const first = other.length ? part(other, "Settings that differ") : element("p", {}, "All settings are the same.");
  return element("div", {}, first, element("details", {}, element("summary", {}, "Settings that are the same"), part(same, "Settings that are the same")));
}

function drawIndex() {
  const rows = data.index;
  byId("title").textContent = "Runs in " + data.folder;
  const going = rows.filter((row) => row.state === "running").length;
  byId("verdict").textContent = `${rows.length} ${rows.length === 1 ? "run" : "runs"}, ${going} of them going.` + (data.more ? ` ${data.more} more are not shown.` : "");
  piece(byId("main"), "index", rows, () => {
    const table = tableOf(["run", "problem", "algorithm", "step", "loss U", "state", "last record"],
      rows.map((row) => [row.name, row.problem, row.algorithm ?? "–", row.step === null ? "–" : row.step.toLocaleString("en"), row.loss ?? "–", row.state, row.last_record ? timeText(row.last_record) : "–"]), "Runs");
    table.querySelectorAll("tbody tr").forEach((line, i) => {
      line.firstChild.replaceChildren(element("a", { href: rows[i].href }, rows[i].name));
      line.children[5].replaceChildren(element("span", { class: "state " + rows[i].state }, rows[i].state));
    });
    return table;
  });
}

function timeText(iso) {
  return new Date(iso).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });
}

function drawClock() {
  if (!data) return;
  const run = data.runs && data.runs.length === 1 ? data.runs[0] : null;
  if (!run || !run.last_record) { byId("footer").textContent = data.live ? "Live." : ""; return; }
  const ago = Math.max(0, Math.round((Date.now() - Date.parse(run.last_record)) / 1000));
  const words = ago < 120 ? `${ago} s ago` : ago < 7200 ? `${Math.round(ago / 60)} min ago` : timeText(run.last_record);
  byId("footer").textContent = data.live ? `Live. Last record ${words}.` : `Last record ${timeText(run.last_record)}.`;
}

function draw(given) {
  if (given.gone) { byId("state").textContent = "gone"; byId("state").className = "state gone"; showTrouble(given.gone); return; }
  showTrouble("");
  data = given;
  if (data.index) drawIndex(); else drawRuns();
}

function showTrouble(words) {
  let node = byId("trouble");
  if (!node) { node = element("p", { id: "trouble", class: "note", role: "alert" }); byId("notes").before(node); }
  node.textContent = words;
  node.hidden = !words;
}

function listen(events) {
  const source = new EventSource(events);
  source.addEventListener("message", (event) => draw(JSON.parse(event.data)));
  source.addEventListener("error", () => showTrouble("The connection to gradless watch is lost; trying again."));
  source.addEventListener("open", () => showTrouble(""));
  setInterval(drawClock, 1000);
}

const given = JSON.parse(byId("data").textContent);
draw(given);
if (given.home) byId("crumb").append(" / ", element("a", { href: given.home }, "all runs"));
if (given.live) listen(given.live);
