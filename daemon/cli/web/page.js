// SPDX-License-Identifier: Apache-2.0
// The page: what the daemon tells, as figures, plots and a list of decisions. All text comes in by textContent.

import { addPoint, dropPlot, drawAll, makePlot, number, setPoints } from "./plots.js";

const CLOCKS = { cpu_khz: "CPU", gpu_hz: "GPU", emc_hz: "EMC" };
const UNITS = { cpu_khz: 1e3, gpu_hz: 1e6, emc_hz: 1e6 }; // of the daemon's figures, to MHz
const COLOURS = 8, ENTRIES = 200, LATE_MS = 6000;
const KINDS = {
  lease_begun: "lease begun", lease_ended: "lease ended", clocks_set: "clocks set", given_back: "given back",
  target_missed: "target missed", target_kept: "target kept", planned_again: "planned again", slowed: "slowed down",
  at_speed: "at speed again", trouble: "trouble",
};

const $ = (id) => document.getElementById(id);
const leases = new Map(); // lease: {card, plot}
let late = null;

function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function setLink(state, text) {
  $("link").dataset.state = state;
  $("link").textContent = text;
  document.body.classList.toggle("stale", state !== "live");
}

function colour(index) {
  return `s${index % COLOURS}`;
}

// Every name that occurs among the points gets a line.
function named(member, scale) {
  return (points) => {
    const names = new Set(points.flatMap((point) => Object.keys(point[member])));
    return [...names].map((name, index) => {
      const at = (point) => (name in point[member] ? point[member][name] / scale : null);
      return { name, kind: colour(index), at };
    });
  };
}

function card(plot) {
  const made = element("div", undefined, "card");
  made.append(plot.figure);
  return made;
}

function boardPlots() {
  Object.entries(CLOCKS).forEach(([axis, name], index) => {
    const series = () => [
      { name: "held", kind: "quiet", dashed: true, step: true, at: (point) => point.held_mhz?.[axis] ?? null },
      { name: "measured", kind: colour(index), step: true, at: (point) => point.clocks_mhz?.[axis] ?? null },
    ];
    $("plots").append(card(makePlot(`${name} clock`, "MHz", series)));
  });
  const total = (point) => (point.power_mw === null ? null : point.power_mw / 1e3);
  $("plots").append(card(makePlot("Power", "W", () => [{ name: "board", kind: colour(0), at: total }])));
  $("plots").append(card(makePlot("Rails", "W", named("rails_mw", 1e3))));
  $("plots").append(card(makePlot("Temperature", "°C", named("temperatures_mc", 1e3), { digits: 1, fromZero: false })));
}

function figure(key, name, value, unit, note) {
  const made = element("div", undefined, "figure");
  made.dataset.figure = key;
  const shown = element("b", `${value} ${unit}`.trim());
  made.append(element("span", name), shown, element("small", note));
  return made;
}

function showNow(status) {
  const { configuration, applied, rails_mw, energy_rails, temperatures_mc } = status;
  const made = Object.entries(CLOCKS).map(([axis, name]) => {
    const clock = configuration?.[axis];
    const held = applied ? `held at ${number(applied.requested[axis] / UNITS[axis])} MHz` : "not held";
    return figure(axis, name, clock ? number(clock / UNITS[axis]) : configuration ? "off" : "–", clock ? "MHz" : "", held);
  });
  const missing = energy_rails.filter((rail) => !(rail in rails_mw));
  const power = missing.length || !energy_rails.length ? null : energy_rails.reduce((sum, rail) => sum + rails_mw[rail], 0) / 1e3;
  const rails = missing.length ? `unknown: ${missing.join(", ")}` : energy_rails.join(" + ");
  made.push(figure("power", "Power", number(power), "W", rails));
  const [hottest] = Object.entries(temperatures_mc).sort((a, b) => b[1] - a[1]);
  made.push(figure("heat", "Hottest", hottest ? (hottest[1] / 1e3).toFixed(1) : "–", "°C", hottest?.[0] ?? ""));
  $("now").replaceChildren(...made);
}

function showLeases(status) {
  $("no-lease").hidden = status.leases.length > 0;
  for (const lease of status.leases) {
    const id = lease.lease;
    if (!leases.has(id)) leases.set(id, newLease(id));
    fillLease(leases.get(id).about, lease);
  }
  const held = new Set(status.leases.map((lease) => lease.lease));
  for (const [id, { made, plot }] of leases) {
    if (held.has(id)) continue;
    dropPlot(plot);
    made.remove();
    leases.delete(id);
  }
}

function newLease(id) {
  const of = (member) => (point) => point.leases[id]?.[member] ?? null;
  // A single late frame must not flatten the rest: figures beyond three times the limit are drawn there.
  const clipped = (member) => (point) => {
    const value = point.leases[id]?.[member] ?? null;
    const limit = point.leases[id]?.limit_ms;
    return value === null || !limit ? value : Math.min(value, 3 * limit);
  };
  const series = (points) => [
    { name: "observed", kind: colour(0), at: clipped("last_ms") },
    { name: "p95", kind: colour(6), at: clipped("p95_ms") },
    { name: "predicted", kind: "quiet", dashed: true, step: true, at: of("predicted_ms") },
    { name: "limit", kind: "limit", dashed: true, step: true, at: of("limit_ms") },
  ].filter((line) => points.some((point) => line.at(point) !== null));
  const plot = makePlot("Latency", "ms", series);
  const made = element("div", undefined, "card");
  made.dataset.lease = id;
  const about = element("div");
  made.append(about, plot.figure);
  $("leases").append(made);
  return { made, about, plot };
}

function fillLease(about, lease) {
  const asked = lease.target ? `${lease.app}, for ${lease.target}` : `${lease.app}, a configuration`;
  const rate = lease.fps ? `, ${lease.fps} frames/s` : "";
  const { predicted, observed, missed, unkept } = lease;
  const rows = [
    ["limit ms", number(lease.limit_ms)],
    ["predicted ms", number(predicted?.latency_ms)],
    ["observed ms", number(observed?.last_ms), missed],
    ["p50 ms", number(observed?.p50_ms)],
    ["p95 ms", number(observed?.p95_ms)],
    ["frames", lease.frames],
    ["late", lease.late, lease.late > 0],
    ["first ms", number(lease.first_ms)],
    ["board's J meanwhile", lease.energy_mj === null ? "–" : (lease.energy_mj / 1e3).toFixed(1)],
  ];
  const list = element("dl");
  for (const [name, value, bad] of rows) {
    const row = element("div");
    row.append(element("dt", name), element("dd", value, bad ? "bad" : ""));
    list.append(row);
  }
  const parts = [element("h3", `${lease.lease}: ${lease.network ?? lease.app}`), element("p", `${asked}${rate}`)];
  if (lease.reason) parts.push(element("p", `reason: ${lease.reason}`));
  if (missed) parts.push(element("p", `Missed: ${missed.reason}${missed.doing ? `. Therefore: ${missed.doing}` : ""}`, "bad"));
  if (lease.doubted) parts.push(element("p", `Its frames do not count: ${lease.doubted.reason}`, "bad"));
  if (lease.silent) parts.push(element("p", lease.silent, "bad"));
  if (unkept) parts.push(element("p", `Not kept: ${unkept.target}: ${unkept.reason}`, "bad"));
  if (lease.raised_by.length) parts.push(element("p", `raised by lease ${lease.raised_by.join(", ")}`));
  about.replaceChildren(...parts, list);
}

function showStatus(status) {
  $("board").textContent = status.title;
  document.title = `jetdvfs: ${status.title}`;
  const profile = status.profile ? `profile ${status.profile.name}${status.profile.simulated ? " (simulated)" : ""}` : "no profile";
  $("about").textContent = [status.mode && `mode ${status.mode.name}`, profile].filter(Boolean).join(", ");
  const known = new Set(status.throttled.map((text) => `throttled: ${text}`));
  const warnings = [...known, ...status.degraded.filter((text) => !known.has(text))];
  $("warnings").hidden = !warnings.length;
  $("warnings").replaceChildren(...warnings.map((text) => element("li", text)));
  showNow(status);
  showLeases(status);
}

function showEntry(entry) {
  const made = element("li", undefined, entry.kind);
  const time = element("time", new Date(1e3 * entry.time_s).toLocaleTimeString([], { hour12: false }));
  time.title = new Date(1e3 * entry.time_s).toString();
  const text = element("p", entry.message);
  if (entry.reason && !entry.message.includes(entry.reason)) text.append(element("small", entry.reason));
  made.append(time, element("em", KINDS[entry.kind] ?? entry.kind), text);
  $("log").prepend(made);
  while ($("log").childElementCount > ENTRIES) $("log").lastElementChild.remove();
}

function live() {
  setLink("live", "live");
  clearTimeout(late);
  late = setTimeout(() => setLink("waiting", "nothing new from the daemon for a while"), LATE_MS);
}

function gone(text) {
  clearTimeout(late);
  setLink("gone", text);
}

boardPlots();
const events = new EventSource("events");
events.addEventListener("history", (event) => {
  const { points, entries } = JSON.parse(event.data);
  $("log").replaceChildren();
  entries.forEach(showEntry);
  setPoints(points);
});
events.addEventListener("now", (event) => {
  const { status, point } = JSON.parse(event.data);
  showStatus(status);
  addPoint(point);
  live();
});
events.addEventListener("entry", (event) => showEntry(JSON.parse(event.data)));
events.addEventListener("gone", (event) => gone(`${JSON.parse(event.data).reason}; waiting for it`));
events.addEventListener("error", () => gone("jetdvfs web has ended; waiting for it"));
drawAll();
