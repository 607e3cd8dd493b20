// The page: one run, several compared, or the list of a folder; drawn once, or again whenever the server says so.

const drawn = new Map();
let data = null;

function byId(id) {
  return document.getElementById(id);
}

// Shows parts, each [name, value, function that builds it], in this order. A part is built again only if its value has
// changed, and moved only if it stands elsewhere, so that a reader keeps what is open and where the focus is.
function show(parent, parts) {
  const nodes = parts.map(([name, value, build]) => {
    const text = JSON.stringify(value);
    const old = drawn.get(name);
    if (old && old.text === text) return old.node;
    const node = build();
    if (old) old.node.replaceWith(node);
    drawn.set(name, { text, node });
    return node;
  });
  nodes.forEach((node, i) => {
    if (parent.children[i] !== node) parent.insertBefore(node, parent.children[i] || null);
  });
  while (parent.children.length > nodes.length) parent.lastChild.remove();
}

function drawRuns() {
  const runs = data.runs;
  const main = byId("main");
  labelRuns(runs);
  if (!byId("curves")) {
    main.replaceChildren(
      element("div", { id: "top" }),
      section(
        "Course",
        controls(() => drawCurves(data.runs)),
        element("p", { id: "no-curves", class: "note" }, "There is no record to draw yet."),
        element("div", { id: "curves", class: "grid curves" }),
      ),
      element("div", { id: "rest" }),
    );
  }
  if (runs.length === 1) drawOne(runs[0]);
  else drawSeveral(runs);
  drawCurves(runs);
}

function labelRuns(runs) {
  for (const run of runs) {
    const isAlone = runs.filter((other) => other.name === run.name).length === 1;
    run.label = isAlone ? run.name : run.path;
  }
}

function drawOne(run) {
  byId("title").textContent = run.name;
  byId("subtitle").textContent = [run.problem, run.algorithm, run.num_chains > 1 ? `${run.num_chains} chains` : ""]
    .filter(Boolean)
    .join("  ·  ");
  byId("verdict").textContent = run.verdict;
  show(byId("notes"), [["notes", run.notes, () => element("div", {}, ...notesOf(run.notes))]]);
  showState(run);
  show(byId("top"), [["tiles", run.numbers, () => tilesOf(run.numbers)]]);
  show(
    byId("rest"),
    partsOf(run).map(([name, value, build]) => [name, value, () => section(name, build())]),
  );
}

function showState(run) {
  const state = byId("state");
  state.textContent = run.state;
  state.className = "state " + run.state;
  const bar = byId("progress");
  bar.hidden = run.state !== "running" || !run.steps || run.step === null;
  if (!bar.hidden) {
    bar.max = run.steps;
    bar.value = run.step;
  }
  drawClock();
}

function drawSeveral(runs) {
  const known = runs.filter((run) => run.numbers.length);
  const problems = [...new Set(runs.map((run) => run.problem))];
  byId("subtitle").textContent = problems.join(", ");
  const best = known.reduce((a, b) => (lossOf(b) < lossOf(a) ? b : a), known[0]);
  byId("verdict").textContent = comparisonOf(problems, best, runs.some((run) => run.num_chains > 1));
  const labels = [...new Set(runs.flatMap((run) => run.numbers.map((one) => one.label)))];
  const rows = runs.map((run) => [
    run.label,
    ...(problems.length > 1 ? [run.problem] : []),
    run.algorithm,
    run.state,
    ...labels.map((label) => (run.numbers.find((one) => one.label === label) || { value: "–" }).value),
  ]);
  const header = ["run", ...(problems.length > 1 ? ["problem"] : []), "algorithm", "state", ...labels];
  show(byId("top"), [["table", rows, () => tableOf(header, rows, "The runs")]]);
  show(byId("rest"), [
    ["settings", "", () => section("Settings", differences(runs))],
    ...runs.map((run, place) => ["run " + place, "", () => detailsOf(run)]),
  ]);
}

function detailsOf(run) {
  const head = [element("summary", {}, run.label), element("p", {}, run.verdict), ...notesOf(run.notes)];
  const body = element("details", { class: "run" }, ...head);
  for (const [name, , build] of partsOf(run)) body.append(element("h3", {}, name), build());
  return body;
}

function comparisonOf(problems, best, hasChains) {
  if (problems.length > 1) return "The runs are of different problems, so their losses do not compare.";
  if (!best) return "None of the runs has a record to show.";
  const median = hasChains ? ", of several chains the median," : "";
  return `The lowest loss U at the end${median} is that of ${best.label}: ${best.numbers[0].value}.`;
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
  const part = (chosenNames, title) =>
    tableOf(
      ["setting", ...runs.map((run) => run.label)],
      chosenNames.map((name) => [name, ...tables.map((table) => table.get(name) ?? "–")]),
      title,
    );
  const same = names.filter((name) => !differs(name)),
    other = names.filter(differs);
  const first = other.length ? part(other, "Settings that differ") : element("p", {}, "All settings are the same.");
  return element(
    "div",
    {},
    first,
    element(
      "details",
      {},
      element("summary", {}, "Settings that are the same"),
      part(same, "Settings that are the same"),
    ),
  );
}

function drawIndex() {
  const rows = data.index;
  const going = rows.filter((row) => row.state === "running").length;
  const more = data.more ? ` ${data.more} more are not shown.` : "";
  byId("title").textContent = "Runs in " + data.folder;
  byId("verdict").textContent =
    `${rows.length} ${rows.length === 1 ? "run" : "runs"}, ${going} of them going.${more}`;
  show(byId("main"), [["index", rows, () => indexOf(rows)]]);
}

function indexOf(rows) {
  const dash = (value) => value ?? "–";
  const cells = rows.map((row) => [
    row.name,
    row.problem,
    dash(row.algorithm),
    row.step === null ? "–" : row.step.toLocaleString("en"),
    dash(row.loss),
    row.state,
    row.last_record ? timeText(row.last_record) : "–",
  ]);
  const table = tableOf(["run", "problem", "algorithm", "step", "loss U", "state", "last record"], cells, "Runs");
  table.querySelectorAll("tbody tr").forEach((line, i) => {
    line.firstChild.replaceChildren(element("a", { href: rows[i].href }, rows[i].name));
    line.children[5].replaceChildren(element("span", { class: "state " + rows[i].state }, rows[i].state));
  });
  return table;
}

function timeText(iso) {
  return new Date(iso).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });
}

function drawClock() {
  if (!data) return;
  const run = data.runs && data.runs.length === 1 ? data.runs[0] : null;
  if (!run || !run.last_record) {
    byId("footer").textContent = data.live ? "Live." : "";
    return;
  }
  const ago = Math.max(0, Math.round((Date.now() - Date.parse(run.last_record)) / 1000));
  const words =
    ago < 120 ? `${ago} s ago` : ago < 7200 ? `${Math.round(ago / 60)} min ago` : timeText(run.last_record);
  byId("footer").textContent = data.live
    ? `Live. Last record ${words}.`
    : `Last record ${timeText(run.last_record)}.`;
}

function draw(given) {
  if (given.gone) {
    byId("state").textContent = "gone";
    byId("state").className = "state gone";
    showTrouble(given.gone);
    return;
  }
  showTrouble("");
  data = given;
  if (data.index) drawIndex();
  else drawRuns();
}

function showTrouble(words) {
  let node = byId("trouble");
  if (!node) {
    node = element("p", { id: "trouble", class: "note", role: "alert" });
    byId("notes").before(node);
  }
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
