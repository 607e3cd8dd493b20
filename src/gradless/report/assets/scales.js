"use strict";
// Axes and numbers: where the ticks are, and how a value is written.

function isNumber(value) {
  return typeof value === "number" && Number.isFinite(value);
}

// Returns {at, ticks, isLog}; `at` takes a value to a place between `from` and `to`, or to null.
function makeScale(low, high, from, to, isLog) {
  if (isLog) {
    if (!(low < high)) {
      low /= 2;
      high *= 2;
    }
    const a = Math.log10(low),
      b = Math.log10(high);
    const at = (v) => (v > 0 ? from + ((Math.log10(v) - a) / (b - a)) * (to - from) : null);
    return { at, ticks: logTicks(low, high), isLog };
  }
  if (!(low < high)) {
    const gap = Math.abs(low) * 0.1 || 1;
    low -= gap;
    high += gap;
  }
  const at = (v) => from + ((v - low) / (high - low)) * (to - from);
  return { at, ticks: linearTicks(low, high, Math.abs(to - from) > 420 ? 7 : 5), isLog };
}

function linearTicks(low, high, number) {
  const rough = (high - low) / number;
  const power = Math.pow(10, Math.floor(Math.log10(rough)));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough * 0.75);
  const ticks = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++) {
    ticks.push(Number((k * step).toPrecision(12)));
  }
  return ticks;
}

function logTicks(low, high) {
  const first = Math.floor(Math.log10(low)),
    last = Math.ceil(Math.log10(high));
  const decades = Math.log10(high / low);
  const every = Math.max(1, Math.ceil(decades / 6));
  const factors = decades < 1.2 ? [1, 2, 3, 5] : decades < 2.5 ? [1, 3] : [1];
  const ticks = [];
  for (let k = first; k <= last; k++) {
    if (factors.length === 1 && (k - first) % every) continue;
    for (const m of factors) {
      const tick = Number((m * Math.pow(10, k)).toPrecision(3));
      if (tick >= low * 0.999 && tick <= high * 1.001) ticks.push(tick);
    }
  }
  return ticks.length > 1 ? ticks : linearTicks(low, high, 4).filter((tick) => tick > 0);
}

const SUPERSCRIPTS = { "-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹" };

function powerOfTen(exponent) {
  return "10" + [...String(exponent)].map((c) => SUPERSCRIPTS[c]).join("");
}

// A number as short as a tick needs it.
function tickText(value, isLog) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (!isLog && size >= 1e3 && size < 1e6) return value.toLocaleString("en");
  if (size >= 1e4 || size < 1e-3) {
    const exponent = Math.floor(Math.log10(size) + 1e-9);
    const factor = Number((value / Math.pow(10, exponent)).toPrecision(3));
    return factor === 1 ? powerOfTen(exponent) : factor + "·" + powerOfTen(exponent);
  }
  return String(Number(value.toPrecision(6)));
}

// A number in four digits, as tables and readouts have it.
function numberText(value) {
  if (!isNumber(value)) return "–";
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return value.toLocaleString("en");
  const size = Math.abs(value);
  return size >= 1e5 || size < 1e-4 ? value.toExponential(3) : String(Number(value.toPrecision(4)));
}

// Times in the unit that suits the longest of them: [unit, seconds in it].
function timeUnit(seconds) {
  return seconds < 120 ? ["s", 1] : seconds < 7200 ? ["min", 60] : ["h", 3600];
}
