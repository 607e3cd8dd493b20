// A chart: lines in SVG with axes, a legend, a cursor for pointer and keys, words and a table that say the same.

// spec: title, hint, xLabel, xName, lines, xLog, yLog (true, false or "auto"), yZero, height.
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
    this.x = abscissasOf(spec.lines);
    const hint = element("span", { class: "hint" }, spec.hint || "");
    this.caption.replaceChildren(element("span", { class: "name" }, spec.title), hint, this.readout);
    this.legend.replaceChildren(...(spec.lines.length > 1 ? spec.lines.map(legendEntry) : []));
    this.draw();
    this.fillNumbers();
  }

  draw() {
    const hadFocus = this.svg && document.activeElement === this.svg;
    const spec = this.spec;
    this.width = this.box.clientWidth || 480;
    const height = spec.height || 250;
    const svg = shape("svg", {
      width: this.width,
      height,
      viewBox: `0 0 ${this.width} ${height}`,
      role: "img",
      tabindex: "0",
    });
    svg.setAttribute("aria-label", wordsOf(spec));
    this.svg = svg;
    const area = { left: 54, right: this.width - 12, top: 10, bottom: height - 40 };
    this.scales = scalesOf(spec, area);
    if (this.scales === null) {
      svg.append(
        shape(
          "text",
          { class: "tick", x: this.width / 2, y: height / 2, "text-anchor": "middle" },
          "nothing to draw on these axes",
        ),
      );
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
    let best = -1,
      least = Infinity;
    for (let i = 0; i < this.x.length; i++) {
      const at = this.scales.x.at(this.x[i]);
      if (at !== null && Math.abs(at - place) < least) {
        best = i;
        least = Math.abs(at - place);
      }
    }
    this.moveTo(best);
  }

  press(event) {
    const last = this.x.length - 1;
    const stride = Math.max(1, Math.round(last / 50));
    const from = this.cursor < 0 ? last : this.cursor;
    const to = { ArrowLeft: from - stride, ArrowRight: from + stride, Home: 0, End: last, Escape: -1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    this.moveTo(event.key === "Escape" ? -1 : Math.min(last, Math.max(0, to)));
  }

  // The cursor stands where some line has a point; the readout says what every line has there.
  moveTo(place) {
    this.cursor = place;
    if (this.mark) this.mark.replaceChildren();
    const value = this.x[place],
      at = this.scales && isNumber(value) ? this.scales.x.at(value) : null;
    if (at === null) {
      this.readout.textContent = "";
      return;
    }
    this.mark.append(shape("line", { x1: at, x2: at, y1: this.area.top, y2: this.area.bottom }));
    const words = [];
    for (const line of this.spec.lines) {
      const found = nearest(line, value);
      words.push(numberText(found));
      const y = isNumber(found) ? this.scales.y.at(found) : null;
      if (y !== null) this.mark.append(shape("circle", { cx: at, cy: y, r: 3.5, class: colourOf(line) }));
    }
    this.readout.textContent = `${this.spec.xName} ${numberText(value)}: ${words.join("  ·  ")}`;
  }

  fillNumbers() {
    if (!this.numbers.open || !this.spec) return;
    const lines = this.spec.lines,
      x = this.x;
    const number = Math.min(20, x.length),
      rows = [];
    for (let i = 0; i < number; i++) {
      const place = number > 1 ? Math.round((i * (x.length - 1)) / (number - 1)) : 0;
      rows.push([numberText(x[place]), ...lines.map((line) => numberText(nearest(line, x[place])))]);
    }
    const old = this.numbers.querySelector(".scroll");
    const table = tableOf([this.spec.xLabel, ...lines.map((line) => line.label)], rows, this.spec.title);
    if (old) old.replaceWith(table);
    else this.numbers.append(table);
  }
}
