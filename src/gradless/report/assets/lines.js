// What a chart consists of: axes, lines, bands and the words that say the same.

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

const NUM_STYLES = 8; // colours, and as many dashes; the ninth line has the first colour with another dash

function colourOf(line) {
  return "s" + (line.slot % NUM_STYLES);
}

function classOf(line) {
  const dash = (line.slot + Math.floor(line.slot / NUM_STYLES)) % NUM_STYLES;
  return line.isTarget ? "line target" : `line ${colourOf(line)} d${dash}`;
}

function legendEntry(line) {
  const swatch = shape("svg", { width: 26, height: 10, "aria-hidden": "true" });
  swatch.append(shape("line", { x1: 1, x2: 25, y1: 5, y2: 5, class: classOf(line) }));
  return element("span", {}, swatch, line.label);
}

// All places at which some line has a point, in order.
function abscissasOf(lines) {
  return [...new Set(lines.flatMap((line) => line.x.filter(isNumber)))].sort((a, b) => a - b);
}

// The value of a line at x, or at the last point before it; nothing outside the line.
function nearest(line, x) {
  let low = 0,
    high = line.x.length - 1;
  if (high < 0 || !isNumber(x) || x > line.x[high] || x < line.x[0]) return null;
  while (low < high) {
    const half = (low + high + 1) >> 1;
    if (line.x[half] <= x) low = half;
    else high = half - 1;
  }
  return line.y[low];
}

function rangeOf(columns, isLog) {
  let low = Infinity,
    high = -Infinity;
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
  const xLog = isLogScale(spec.xLog, xs),
    yLog = isLogScale(spec.yLog, ys);
  const x = rangeOf(xs, xLog),
    y = rangeOf(ys, yLog);
  if (x === null || y === null) return null;
  if (!yLog && spec.yZero && y[0] > 0) y[0] = 0;
  if (!yLog) {
    const gap = (y[1] - y[0]) * 0.04;
    y[1] += gap;
    if (y[0] !== 0) y[0] -= gap;
  }
  return {
    x: makeScale(x[0], x[1], area.left, area.right, xLog),
    y: makeScale(y[0], y[1], area.bottom, area.top, yLog),
  };
}

function drawAxes(svg, spec, scales, area) {
  for (const tick of scales.y.ticks) {
    const at = scales.y.at(tick);
    if (at > area.bottom + 1 || at < area.top - 1) continue;
    svg.append(shape("line", { class: "grid", x1: area.left, x2: area.right, y1: at, y2: at }));
    svg.append(
      shape(
        "text",
        { class: "tick", x: area.left - 8, y: at + 4, "text-anchor": "end" },
        tickText(tick, scales.y.isLog),
      ),
    );
  }
  let taken = -Infinity;
  for (const tick of scales.x.ticks) {
    const at = scales.x.at(tick),
      text = tickText(tick, scales.x.isLog),
      half = text.length * 3.4,
      anchor = at + half > area.right + 10 ? "end" : "middle",
      left = anchor === "end" ? area.right + 8 - 2 * half : at - half;
    if (at > area.right + 1 || at < area.left - 1 || left < taken + 6) continue;
    taken = left + 2 * half;
    svg.append(shape("line", { class: "axis", x1: at, x2: at, y1: area.bottom, y2: area.bottom + 4 }));
    svg.append(
      shape(
        "text",
        { class: "tick", x: anchor === "end" ? area.right + 8 : at, y: area.bottom + 18, "text-anchor": anchor },
        text,
      ),
    );
  }
  svg.append(shape("line", { class: "axis", x1: area.left, x2: area.right, y1: area.bottom, y2: area.bottom }));
  svg.append(
    shape("text", { class: "label", x: area.right, y: area.bottom + 35, "text-anchor": "end" }, spec.xLabel),
  );
}

function drawLine(svg, line, scales, area) {
  if (line.low) svg.append(shape("path", { class: "band " + colourOf(line), d: bandPath(line, scales) }));
  for (const chain of line.thin || []) {
    svg.append(shape("path", { class: "thin " + colourOf(line), d: linePath(line.x, chain, scales) }));
  }
  svg.append(shape("path", { class: classOf(line), d: linePath(line.x, line.y, scales) }));
  if (line.dots) {
    for (let i = 0; i < line.x.length; i++) {
      const [x, y] = placeOf(line.x[i], line.y[i], scales);
      if (x !== null && y !== null) svg.append(shape("circle", { class: "dot " + colourOf(line), cx: x, cy: y, r: 2.2 }));
    }
  }
}

function placeOf(x, y, scales) {
  return [isNumber(x) ? scales.x.at(x) : null, isNumber(y) ? scales.y.at(y) : null];
}

// A gap where a value is missing; a point alone between two gaps still shows.
function linePath(xs, ys, scales) {
  let path = "",
    isOpen = false;
  for (let i = 0; i < xs.length; i++) {
    const [x, y] = placeOf(xs[i], ys[i], scales);
    if (x === null || y === null) {
      isOpen = false;
      continue;
    }
    path += (isOpen ? "L" : "M") + x.toFixed(1) + " " + y.toFixed(1) + (isOpen ? "" : "h0.01");
    isOpen = true;
  }
  return path;
}

function bandPath(line, scales) {
  const upper = [],
    lower = [];
  for (let i = 0; i < line.x.length; i++) {
    const [x, high] = placeOf(line.x[i], line.high[i], scales),
      [, low] = placeOf(line.x[i], line.low[i], scales);
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
    const lowest = values.reduce((a, b) => Math.min(a, b)),
      highest = values.reduce((a, b) => Math.max(a, b));
    return (
      `${line.label}: from ${numberText(first[1])} at ${numberText(first[0])} to ${numberText(last[1])} at ` +
      `${numberText(last[0])}, lowest ${numberText(lowest)}, highest ${numberText(highest)}`
    );
  });
  return `${spec.title}, against ${spec.xLabel}. ${words.join("; ")}.`;
}
