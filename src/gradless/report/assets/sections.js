// The parts of a page that are not curves: numbers, what the nets say, settings, commands.

function section(title, ...children) {
  return element("section", {}, element("h2", {}, title), ...children);
}

function tilesOf(numbers) {
  const tiles = element("dl", { class: "tiles" });
  for (const one of numbers) {
    const value = element("dd", {}, one.value);
    const tile = element("div", {}, element("dt", {}, one.label), value);
    if (one.more) tile.append(element("dd", { class: "more" }, one.more));
    tiles.append(tile);
  }
  return tiles;
}

function notesOf(notes) {
  return notes.map((words) => element("p", { class: "note" }, words));
}

function commandsOf(commands) {
  const list = element("div", { class: "commands" });
  for (const one of commands) {
    list.append(element("p", {}, one.words));
    if (one.command) list.append(element("pre", { tabindex: "0" }, element("code", {}, one.command)));
  }
  return list;
}

// Rows of name and value; those of algorithm.sigma, algorithm.n_s, ... stand under the heading "algorithm".
function keyTable(rows, name) {
  const body = element("tbody");
  const alone = rows.filter(([key]) => !key.includes("."));
  const grouped = rows.filter(([key]) => key.includes("."));
  let group = "";
  for (const [key, value] of [...alone, ...grouped]) {
    const dot = key.indexOf(".");
    if (dot >= 0 && key.slice(0, dot) !== group) {
      group = key.slice(0, dot);
      body.append(element("tr", { class: "group" }, element("th", { scope: "rowgroup", colspan: "2" }, group)));
    }
    body.append(element("tr", {}, element("th", { scope: "row" }, key.slice(dot + 1)), element("td", {}, value)));
  }
  return element("table", { class: "keys", "aria-label": name }, body);
}

function outputsOf(outputs) {
  const parent = element("div", { class: "wide" });
  const several = outputs.nets.length > 1;
  const lines = [{ label: "target", x: outputs.x, y: outputs.target, slot: 7, isTarget: true }];
  lines.push({
    label: several ? "best chain" : "net",
    x: outputs.x,
    y: outputs.nets[0],
    thin: outputs.nets.slice(1),
    slot: 0,
  });
  new Chart(parent).update({
    title: `Output of the net at step ${outputs.step.toLocaleString("en")}`,
    xLabel: "input θ",
    xName: "θ",
    lines,
    xLog: false,
    yLog: false,
    height: 320,
  });
  return parent;
}

function matrixOf(images) {
  const size = images.matrix.length;
  const classes = [...Array(size).keys()];
  const head = element("tr", {}, element("th", { scope: "col", class: "corner" }, "is \\ taken for"));
  for (const k of classes) head.append(element("th", { scope: "col" }, String(k)));
  const body = element("tbody");
  const most = Math.max(1, ...images.matrix.flatMap((row, i) => row.filter((_, k) => k !== i)));
  images.matrix.forEach((row, i) => {
    const line = element("tr", {}, element("th", { scope: "row" }, String(i)));
    row.forEach((count, k) => {
      const cell = element(
        "td",
        { class: i === k ? "right" : count ? "wrong" : "none" },
        count ? String(count) : "·",
      );
      if (i !== k && count) cell.style.setProperty("--strength", (0.18 + (0.82 * count) / most).toFixed(2));
      line.append(cell);
    });
    body.append(line);
  });
  const table = element(
    "table",
    { class: "matrix", "aria-label": "Confusion matrix" },
    element("thead", {}, head),
    body,
  );
  return element("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Confusion matrix" }, table);
}

function imagesOf(images, numChains) {
  const part =
    images.number < images.total
      ? ` (the first ${images.number.toLocaleString("en")} of ${images.total.toLocaleString("en")})`
      : "";
  const words =
    `At step ${images.step.toLocaleString("en")} ${numChains > 1 ? "the best net" : "the net"} takes ${images.num_wrong.toLocaleString("en")} of ` +
    `${images.number.toLocaleString("en")} test images${part} for something else.`;
  const left = element(
    "figure",
    { class: "card" },
    element("figcaption", {}, element("span", { class: "name" }, "Confusion matrix")),
    matrixOf(images),
  );
  const both = element("div", { class: "grid" }, left);
  if (images.wrong.length) both.append(wrongOf(images));
  return element("div", {}, element("p", { class: "lead" }, words), both);
}

function wrongOf(images) {
  const list = element("ul", { class: "pictures" });
  for (const one of images.wrong) {
    const words = `A ${one.label} taken for a ${one.taken}`;
    const canvas = element("canvas", {
      width: images.side,
      height: images.side,
      role: "img",
      "aria-label": words,
      title: words,
    });
    paint(canvas, one.pixels, images.side);
    list.append(element("li", {}, canvas, element("span", { "aria-hidden": "true" }, `${one.label} → ${one.taken}`)));
  }
  const more =
    images.num_wrong > images.wrong.length
      ? ` (${images.wrong.length} of ${images.num_wrong.toLocaleString("en")})`
      : "";
  const caption = element("figcaption", {}, element("span", { class: "name" }, "Taken for another" + more));
  return element("figure", { class: "card" }, caption, list);
}

function paint(canvas, pixels, side) {
  const bytes = atob(pixels),
    context = canvas.getContext("2d"),
    image = context.createImageData(side, side);
  for (let i = 0; i < side * side; i++) {
    const shade = 255 - bytes.charCodeAt(i);
    image.data.set([shade, shade, shade, 255], 4 * i);
  }
  context.putImageData(image, 0, 0);
}

// What belongs to one run beside its curves, as [name, value, function that builds it].
function partsOf(run) {
  const parts = [];
  if (run.outputs) parts.push(["What the net says", run.outputs, () => outputsOf(run.outputs)]);
  if (run.images) parts.push(["What the net says", run.images, () => imagesOf(run.images, run.num_chains)]);
  if (run.no_nets)
    parts.push(["What the net says", run.no_nets, () => element("p", { class: "note" }, run.no_nets.reason)]);
  if (run.chains.length) {
    parts.push(["Chains", run.chains, () => tableOf(run.chains[0], run.chains.slice(1), "Chains")]);
  }
  parts.push(["Make it again, or go on", run.commands, () => commandsOf(run.commands)]);
  const both = () =>
    element(
      "div",
      { class: "grid" },
      element("div", { class: "card" }, element("h3", {}, "Settings"), keyTable(run.settings, "Settings")),
      element("div", { class: "card" }, element("h3", {}, "Environment"), keyTable(run.environment, "Environment")),
    );
  parts.push(["Settings and environment", [run.settings, run.environment], both]);
  return parts;
}
