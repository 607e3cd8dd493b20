// A chart: lines in SVG with axes, a legend, a cursor for pointer and keys, words and a table that say the same.

const SVG = "http://www.w3.org/2000/svg";

function element(name, attributes, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) node.setAttribute(key, value);
  for (const child of children) node.append(child);
  return node;
}

function shape(name, attributes, text) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes || {})) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  return node;
}

function tableOf(header, rows, name) {
  const head = element("tr");
  for (const word of header) head.append(element("th", { scope: "col" }, word));
  const body = element("tbody");
  for (const row of rows) {
    const line = element("tr");
    for (const word of row) line.append(element("td", {}, word));
    body.append(line);
  }
  const table = element("table", { "aria-label": name }, element("thead", {}, head), body);
  return element("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": name }, table);
}

// spec: title, xLabel, yLabel, lines, xLog, yLog (true, false or "auto"), yZero, height.
// A line: label, x, y, slot (colour and dash), and of several chains low, high and thin (each of them).
class Chart {
  constructor(parent) {
    this.readout = element("span", { class: "readout", "aria-live": "polite" });
    this.caption = element("figcaption");
    this.box = element("div", { class: "plot" });
    this.legend = element("div", { class: "legend" });
    this.numbers = element("details", {}, element("summary", {}, "Numbers"));
    this.figure = element("figure", { class: "card" }, this.caption, this.box, this.legend, this.numbers);
    this.cursor = -1;
    this.numbers.addEventListener("toggle", () => this.fillNumbers());
    parent.append(this.figure);
    this.observer = new ResizeObserver(() => {
      if (this.spec && this.box.clientWidth && this.box.clientWidth !== this.width) this.draw();
    });
    this.observer.observe(this.box);
  }

  update(spec) {
    this.spec = spec;
    this.caption.replaceChildren(element("span", { class: "name" }, spec.title), this.readout);
    this.legend.replaceChildren(...(spec.lines.length > 1 ? spec.lines.map(legendEntry) : []));
    this.draw();
    this.fillNumbers();
  }

  draw() {
    const hadFocus = this.svg && document.activeElement === this.svg;
    const spec = this.spec;
    this.width = this.box.clientWidth || 480;
    const height = spec.height || 250;
    const svg = shape("svg", { width: this.width, height, viewBox: `0 0 ${this.width} ${height}`, role: "img", tabindex: "0" });
    svg.setAttribute("aria-label", wordsOf(spec));
    this.svg = svg;
    const area = { left: 54, right: this.width - 12, top: 10, bottom: height - 40 };
    this.scales = scalesOf(spec, area);
    if (this.scales === null) {
      svg.append(shape("text", { class: "tick", x: this.width / 2, y: height / 2, "text-anchor": "middle" }, "nothing to draw yet"));
    } else {
      drawAxes(svg, spec, this.scales, area);
      for (const line of spec.lines) drawLine(svg, line, this.scales, area);
      this.mark = svg.appendChild(shape("g", { class: "mark" }));
      this.area = area;
      svg.addEventListener("pointermove", (event) => this.point(event));
      svg.addEventListener("pointerleave", () => this.moveTo(-1));
      svg.addEventListener("keydown", (event) => this.press(event));
      svg.addEventListener("blur", () => this.moveTo(-1));
    }
    this.box.replaceChildren(svg);
    if (hadFocus) svg.focus({ preventScroll: true });
    this.moveTo(this.cursor);
  }

  point(event) {
    const place = event.clientX - this.svg.getBoundingClientRect().left;
    const x = this.spec.lines[0].x;
    let best = -1, least = Infinity;
    for (let i = 0; i < x.length; i++) {
      const at = isNumber(x[i]) ? this.scales.x.at(x[i]) : null;
      if (at !== null && Math.abs(at - place) < least) { best = i; least = Math.abs(at - place); }
    }
    this.moveTo(best);
  }

  press(event) {
    const last = this.spec.lines[0].x.length - 1;
    const stride = Math.max(1, Math.round(last / 50));
    const from = this.cursor < 0 ? last : this.cursor;
    const to = { ArrowLeft: from - stride, ArrowRight: from + stride, Home: 0, End: last, Escape: -1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    this.moveTo(event.key === "Escape" ? -1 : Math.min(last, Math.max(0, to)));
  }

  // The cursor stands on a point of the first line; the readout says what every line has there.
  moveTo(place) {
    this.cursor = place;
    if (this.mark) this.mark.replaceChildren();
    const first = this.spec.lines[0];
    if (!this.scales || place < 0 || !first || !isNumber(first.x[place])) { this.readout.textContent = ""; return; }
    const value = first.x[place], at = this.scales.x.at(value);
    if (at === null) { this.readout.textContent = ""; return; }
    this.mark.append(shape("line", { x1: at, x2: at, y1: this.area.top, y2: this.area.bottom }));
    const words = [];
    for (const line of this.spec.lines) {
      const found = nearest(line, value);
      if (!isNumber(found)) continue;
      words.push(numberText(found));
      const y = this.scales.y.at(found);
      if (y !== null) this.mark.append(shape("circle", { cx: at, cy: y, r: 3.5, class: "s" + line.slot }));
    }
    this.readout.textContent = `${this.spec.xName} ${numberText(value)}: ${words.join("  ·  ")}`;
  }

  fillNumbers() {
    if (!this.numbers.open || !this.spec) return;
    const lines = this.spec.lines;
    const x = lines.length ? lines[0].x : [];
    const number = Math.min(20, x.length), rows = [];
    for (let i = 0; i < number; i++) {
      const place = number > 1 ? Math.round(i * (x.length - 1) / (number - 1)) : 0;
      rows.push([numberText(x[place]), ...lines.map((line) => numberText(nearest(line, x[place])))]);
    }
    const old = this.numbers.querySelector(".scroll");
    const table = tableOf([this.spec.xLabel, ...lines.map((line) => line.label)], rows, this.spec.title);
    if (old) old.replaceWith(table); else this.numbers.append(table);
  }
}

function classOf(line) {
  return line.isTarget ? "line target" : "line s" + line.slot;
}

function legendEntry(line) {
  const swatch = shape("svg", { width: 26, height: 10, "aria-hidden": "true" });
  swatch.append(shape("line", { x1: 1, x2: 25, y1: 5, y2: 5, class: classOf(line) }));
  return element("span", {}, swatch, line.label);
}

// The value of a line at x, or at the last point before it; nothing outside the line.
function nearest(line, x) {
  let low = 0, high = line.x.length - 1;
  if (high < 0 || !isNumber(x) || x > line.x[high] || x < line.x[0]) return line.x.indexOf(x) < 0 ? null : line.y[line.x.indexOf(x)];
  while (low < high) {
    const half = (low + high + 1) >> 1;
    if (line.x[half] <= x) low = half; else high = half - 1;
  }
  return line.y[low];
}

function rangeOf(columns, isLog) {
  let low = Infinity, high = -Infinity;
  for (const column of columns) {
    for (const value of column || []) {
      if (!isNumber(value) || (isLog && value <= 0)) continue;
      if (value < low) low = value;
      if (value > high) high = value;
    }
  }
  return low <= high ? [low, high] : null;
}

// A quantity that is positive and spans more than a factor of ten gets a logarithmic axis unless someone chose.
function isLogScale(wanted, columns) {
  const all = rangeOf(columns, false);
  if (wanted === "auto") return all !== null && all[0] > 0 && all[1] > 10 * all[0];
  return wanted && rangeOf(columns, true) !== null;
}

function scalesOf(spec, area) {
  const xs = spec.lines.map((line) => line.x);
  const ys = spec.lines.flatMap((line) => [line.y, line.low, line.high, ...(line.thin || [])]);
  const xLog = isLogScale(spec.xLog, xs), yLog = isLogScale(spec.yLog, ys);
  const x = rangeOf(xs, xLog), y = rangeOf(ys, yLog);
  if (x === null || y === null) return null;
  if (!yLog && spec.yZero && y[0] > 0) y[0] = 0;
  if (!yLog) { const gap = (y[1] - y[0]) * 0.04; y[1] += gap; if (y[0] !== 0) y[0] -= gap; }
  return { x: makeScale(x[0], x[1], area.left, area.right, xLog), y: makeScale(y[0], y[1], area.bottom, area.top, yLog) };
}

function drawAxes(svg, spec, scales, area) {
  for (const tick of scales.y.ticks) {
    const at = scales.y.at(tick);
    if (at > area.bottom + 1 || at < area.top - 1) continue;
    svg.append(shape("line", { class: "grid", x1: area.left, x2: area.right, y1: at, y2: at }));
    svg.append(shape("text", { class: "tick", x: area.left - 8, y: at + 4, "text-anchor": "end" }, tickText(tick, scales.y.isLog)));
  }
  let taken = -Infinity;
  for (const tick of scales.x.ticks) {
    const at = scales.x.at(tick), text = tickText(tick, scales.x.isLog), half = text.length * 3.4;
    if (at > area.right + 1 || at < area.left - 1 || at - half < taken + 6) continue;
    taken = at + half;
    const anchor = at + half > area.right + 10 ? "end" : "middle";
    svg.append(shape("line", { class: "axis", x1: at, x2: at, y1: area.bottom, y2: area.bottom + 4 }));
    svg.append(shape("text", { class: "tick", x: anchor === "end" ? area.right + 8 : at, y: area.bottom + 18, "text-anchor": anchor }, text));
  }
  svg.append(shape("line", { class: "axis", x1: area.left, x2: area.right, y1: area.bottom, y2: area.bottom }));
  svg.append(shape("text", { class: "label", x: area.right, y: area.bottom + 35, "text-anchor": "end" }, spec.xLabel));
}

function drawLine(svg, line, scales, area) {
  if (line.low) svg.append(shape("path", { class: "band s" + line.slot, d: bandPath(line, scales) }));
  for (const chain of line.thin || []) {
    svg.append(shape("path", { class: "thin s" + line.slot, d: linePath(line.x, chain, scales) }));
  }
  svg.append(shape("path", { class: classOf(line), d: linePath(line.x, line.y, scales) }));
  if (line.dots) {
    for (let i = 0; i < line.x.length; i++) {
      const [x, y] = placeOf(line.x[i], line.y[i], scales);
      if (x !== null && y !== null) svg.append(shape("circle", { class: "dot s" + line.slot, cx: x, cy: y, r: 2.2 }));
    }
  }
}

function placeOf(x, y, scales) {
  return [isNumber(x) ? scales.x.at(x) : null, isNumber(y) ? scales.y.at(y) : null];
}

// A gap where a value is missing; a point alone between two gaps still shows.
function linePath(xs, ys, scales) {
  let path = "", isOpen = false;
  for (let i = 0; i < xs.length; i++) {
    const [x, y] = placeOf(xs[i], ys[i], scales);
    if (x === null || y === null) { isOpen = false; continue; }
    path += (isOpen ? "L" : "M") + x.toFixed(1) + " " + y.toFixed(1) + (isOpen ? "" : "h0.01");
    isOpen = true;
  }
  return path;
}

function bandPath(line, scales) {
  const upper = [], lower = [];
  for (let i = 0; i < line.x.length; i++) {
    const [x, high] = placeOf(line.x[i], line.high[i], scales), [, low] = placeOf(line.x[i], line.low[i], scales);
    if (x === null || high === null || low === null) continue;
    upper.push(x.toFixed(1) + " " + high.toFixed(1));
    lower.unshift(x.toFixed(1) + " " + low.toFixed(1));
  }
  return upper.length ? "M" + upper.concat(lower).join("L") + "Z" : "";
}

// What the chart shows, in words.
function wordsOf(spec) {
  const words = spec.lines.map((line) => {
    const known = line.y.map((y, i) => [line.x[i], y]).filter(([x, y]) => isNumber(x) && isNumber(y));
    if (!known.length) return `${line.label}: no numbers`;
    const values = known.map(([, y]) => y);
    const [first, last] = [known[0], known[known.length - 1]];
    const lowest = values.reduce((a, b) => Math.min(a, b)), highest = values.reduce((a, b) => Math.max(a, b));
    return `${line.label}: from ${numberText(first[1])} at ${numberText(first[0])} to ${numberText(last[1])} at ` +
      `${numberText(last[0])}, lowest ${numberText(lowest)}, highest ${numberText(highest)}`;
  });
  return `${spec.title}, against ${spec.xLabel}. ${words.join("; ")}.`;
}
