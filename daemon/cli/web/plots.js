// SPDX-License-Identifier: Apache-2.0
// Lines over the last minutes, as SVG. A plot is made once and drawn anew whenever a point comes.

const SVG = "http://www.w3.org/2000/svg";
const LONGEST_S = 600, SHORTEST_S = 60;
const GAP_S = 15; // the daemon was gone, or nobody looked
const LEFT = 40, RIGHT = 6, TOP = 8, BOTTOM = 18;

const plots = new Set();
let points = [];
let pointedAt = null; // a time, in every plot alike

export function setPoints(all) {
  points = all;
  drawAll();
}

export function addPoint(point) {
  if (points.length && points[points.length - 1].time_s === point.time_s) return; // the last one of the history
  points.push(point);
  while (points[0].time_s < point.time_s - LONGEST_S) points.shift();
  drawAll();
}

// title: what it shows. unit: of its values. series: a function from the points to [{name, kind, dashed, step, at: point -> value}].
// digits: after the point in its legend. fromZero: whether 0 is always in sight.
export function makePlot(title, unit, series, { digits, fromZero = true } = {}) {
  const figure = document.createElement("figure");
  const caption = figure.appendChild(document.createElement("figcaption"));
  const svg = figure.appendChild(document.createElementNS(SVG, "svg"));
  svg.setAttribute("role", "img");
  const plot = { title, unit, series, digits, fromZero, figure, caption, svg };
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const { from, to } = span();
    const along = (event.clientX - box.left - LEFT) / (box.width - LEFT - RIGHT);
    pointedAt = from + Math.min(Math.max(along, 0), 1) * (to - from);
    drawAll();
  });
  svg.addEventListener("pointerleave", () => {
    pointedAt = null;
    drawAll();
  });
  plots.add(plot);
  return plot;
}

export function dropPlot(plot) {
  plots.delete(plot);
}

export function drawAll() {
  for (const plot of plots) draw(plot);
}

export function number(value, digits) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  return value.toFixed(digits ?? (size >= 1000 ? 0 : size >= 100 ? 1 : 2));
}

function span() {
  const to = points.length ? points[points.length - 1].time_s : 0;
  const first = points.length ? points[0].time_s : 0;
  return { from: to - Math.min(Math.max(to - first, SHORTEST_S), LONGEST_S), to };
}

function draw({ title, unit, series, digits, fromZero, caption, svg }) {
  const width = svg.clientWidth, height = svg.clientHeight;
  if (!width || !height) return;
  const lines = series(points);
  const shown = pointedAt === null ? points[points.length - 1] : nearest(pointedAt);
  const { from, to } = span();
  label(caption, `${title}, ${unit}`, lines, digits, shown, to);
  const values = lines.flatMap((line) => points.map(line.at)).filter((value) => value !== null && value !== undefined);
  const ticks = scale(values, fromZero);
  const low = ticks[0], high = ticks[ticks.length - 1];
  const x = (time_s) => LEFT + ((time_s - from) / (to - from)) * (width - LEFT - RIGHT);
  const y = (value) => height - BOTTOM - ((value - low) / (high - low)) * (height - TOP - BOTTOM);
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("aria-label", `${title} in ${unit} over the last ${Math.round((to - from) / 60)} minutes`);
  const parts = [];
  for (const tick of ticks) {
    parts.push(make("line", { class: "rule", x1: LEFT, x2: width - RIGHT, y1: y(tick), y2: y(tick) }));
    parts.push(make("text", { x: LEFT - 5, y: y(tick) + 4, "text-anchor": "end" }, tidy(tick)));
  }
  for (const ago_s of agos(to - from)) {
    const anchor = ago_s === 0 ? "end" : "middle";
    parts.push(make("text", { x: x(to - ago_s), y: height - 4, "text-anchor": anchor }, ago(ago_s)));
  }
  for (const line of lines) {
    for (const stretch of stretches(line, x, y)) {
      parts.push(make("polyline", { class: `${line.kind}${line.dashed ? " dashed" : ""}`, points: stretch.join(" ") }));
    }
  }
  if (pointedAt !== null && shown) {
    parts.push(make("line", { class: "mark", x1: x(shown.time_s), x2: x(shown.time_s), y1: TOP, y2: height - BOTTOM }));
  }
  svg.replaceChildren(...parts);
}

// Where a value is missing, or nothing was asked for a while, a line ends and the next one begins.
function stretches(line, x, y) {
  const found = [];
  let current = [], before = null;
  for (const point of points) {
    const value = line.at(point);
    const missing = value === null || value === undefined;
    if (current.length && (missing || point.time_s - before.time_s > GAP_S)) {
      found.push(current);
      current = [];
    }
    if (missing) continue;
    const at = `${x(point.time_s).toFixed(1)},`;
    if (line.step && current.length) current.push(`${at}${y(line.at(before)).toFixed(1)}`);
    current.push(`${at}${y(value).toFixed(1)}`);
    before = point;
  }
  if (current.length) found.push(current);
  // A single point shows as a dot, by its round ends.
  return found.map((one) => (one.length === 1 ? [one[0], one[0]] : one));
}

function label(caption, title, lines, digits, shown, to) {
  const name = document.createElement("strong");
  name.textContent = title;
  const parts = lines.map((line) => {
    const part = document.createElement("span");
    const key = part.appendChild(document.createElement("i"));
    key.className = line.kind;
    part.append(`${line.name} ${shown ? number(line.at(shown), digits) : "–"}`);
    return part;
  });
  if (pointedAt !== null && shown) {
    const when = document.createElement("span");
    when.textContent = ago(Math.round(to - shown.time_s));
    parts.push(when);
  }
  caption.replaceChildren(name, ...parts);
}

function nearest(time_s) {
  let best = points[0];
  for (const point of points) if (Math.abs(point.time_s - time_s) < Math.abs(best.time_s - time_s)) best = point;
  return best;
}

// Three to six round numbers that have all values between them.
function scale(values, fromZero) {
  let low = values.length ? values.reduce((a, b) => Math.min(a, b)) : 0;
  let high = values.length ? values.reduce((a, b) => Math.max(a, b)) : 1;
  const room = Math.max(high - low, Math.abs(high) * 0.1, 1e-3) * 0.08;
  high += room;
  low = fromZero ? Math.min(low, 0) : low - room;
  const rough = (high - low) / 3;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 2.5, 5, 10].find((one) => one * power >= rough * 0.999);
  const ticks = [];
  for (let tick = Math.floor(low / step + 1e-9); ticks.length < 2 || (tick - 1) * step < high; tick++) ticks.push(tick * step);
  return ticks;
}

function tidy(value) {
  return String(Number(value.toPrecision(6)));
}

function agos(length_s) {
  const step = [15, 30, 60, 120, 300].find((one) => length_s / one <= 5) ?? 300;
  const found = [];
  for (let ago_s = 0; ago_s < length_s; ago_s += step) found.push(ago_s);
  return found;
}

function ago(ago_s) {
  if (ago_s === 0) return "now";
  return ago_s < 60 ? `-${ago_s} s` : `-${Math.floor(ago_s / 60)}${ago_s % 60 ? `:${String(ago_s % 60).padStart(2, "0")}` : ""} min`;
}

function make(name, attributes, text) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

new ResizeObserver(drawAll).observe(document.documentElement);
