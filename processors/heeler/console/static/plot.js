// Evidence as curves: the victim against the band of its peers. Drawn as SVG, read by pointer and by arrow keys.

import { h, svg } from "./dom.js";
import { clock, metricName, plural, reading } from "./format.js";

const W = 720, H = 210, LEFT = 74, RIGHT = 12, TOP = 10, BOTTOM = 26;

export function plotsOf(page, first) {
  if (!page.plots.length) return [h("p", { class: "small" }, `No plot: ${page.why ?? "nothing is known"}.`)];
  const some = page.nodes_all > page.nodes ? ` The band is that of ${plural(page.nodes, "node")} of ${page.nodes_all.toLocaleString("en-US")}.` : "";
  const read = page.plots.filter(isRead), unread = page.plots.filter((one) => !isRead(one)).map((one) => metricName(one.metric));
  const who = page.victims ? plural(page.peers, "peer") : plural(page.peers, "GPU");
  return [
    ...read.map((one) => plot(page, one, first)),
    h("p", { class: "small" }, (read.length ? `Band: 10th to 90th percentile of ${who}, line: their median.${some}` : "")
      + (unread.length ? ` Not read in this time: ${unread.join(", ")}.` : "")
      + (page.victims > 8 ? ` The first 8 of ${page.victims} GPUs have a curve.` : "")),
  ];
}

const isRead = (one) => one.band.some(Boolean) || one.curves.some((curve) => curve.values.some((v) => v !== null));

function plot(page, one, first) {
  const known = [...one.band.filter(Boolean).flat(), ...one.curves.flatMap((c) => c.values.filter((v) => v !== null))];
  const name = metricName(one.metric);
  const [low, high] = range(known);
  const x = (at) => LEFT + ((at + 0.5) / page.bins) * (W - LEFT - RIGHT);
  const y = (value) => TOP + (1 - (value - low) / (high - low)) * (H - TOP - BOTTOM);
  const said = h("output", { class: "small" });
  const cross = svg("line", { class: "cross", y1: TOP, y2: H - BOTTOM, x1: -9, x2: -9 });
  const picture = svg("svg", { viewBox: `0 0 ${W} ${H}`, tabindex: 0, role: "img", "aria-label": `${name} over time. Left and right arrow keys read it.` },
    ticks(low, high).map((value) => [
      svg("line", { class: "grid", x1: LEFT, x2: W - RIGHT, y1: y(value), y2: y(value) }),
      svg("text", { x: LEFT - 8, y: y(value) + 4, "text-anchor": "end" }, reading(one.metric, value)),
    ]),
    [0, 1, 2, 3].map((part) => svg("text", { x: x((page.bins - 1) * part / 3), y: H - 8, "text-anchor": part === 0 ? "start" : part === 3 ? "end" : "middle" },
      clock(page.start + page.step * (page.bins - 1) * part / 3).slice(0, 5))),
    runs(one.band).map((run) => svg("polygon", { class: "band", points: [...run.map(([at, v]) => `${x(at)},${y(v[2])}`), ...run.toReversed().map(([at, v]) => `${x(at)},${y(v[0])}`)].join(" ") })),
    runs(one.band).map((run) => svg("polyline", { class: "median", points: run.map(([at, v]) => `${x(at)},${y(v[1])}`).join(" ") })),
    first && first > page.start ? svg("line", { class: "began", x1: x((first - page.start) / page.step), x2: x((first - page.start) / page.step), y1: TOP, y2: H - BOTTOM }) : null,
    one.curves.map((curve) => runs(curve.values).map((run) => run.length === 1 ? svg("circle", { class: "victim-dot", cx: x(run[0][0]), cy: y(run[0][1]), r: 2.5 })
      : svg("polyline", { class: "victim", points: run.map(([at, v]) => `${x(at)},${y(v)}`).join(" ") }))),
    cross);
  let at = lastKnown(one);
  const read = (next) => {
    at = Math.min(page.bins - 1, Math.max(0, next));
    cross.setAttribute("x1", x(at));
    cross.setAttribute("x2", x(at));
    said.textContent = wordsAt(page, one, at);
  };
  picture.addEventListener("pointermove", (event) => {
    const bounds = picture.getBoundingClientRect();
    read(Math.floor((((event.clientX - bounds.left) / bounds.width) * W - LEFT) / (W - LEFT - RIGHT) * page.bins));
  });
  picture.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step) { read(at + step); event.preventDefault(); }
  });
  said.textContent = wordsAt(page, one, at);
  return h("figure", {}, h("figcaption", {}, name), picture, said);
}

function wordsAt(page, one, at) {
  const band = one.band[at];
  const mine = one.curves.slice(0, 3).map((curve) => `${curve.uuid.slice(0, 12)}… ${reading(one.metric, curve.values[at])}`);
  const all = page.victims ? "peers" : "all";
  const peers = band ? `${all} ${reading(one.metric, band[1])} (${reading(one.metric, band[0])} to ${reading(one.metric, band[2])})` : `${all} not read`;
  return `${clock(page.start + page.step * (at + 0.5))}: ${[...mine, peers].join("; ")}`;
}

function lastKnown(one) {
  for (let at = one.band.length - 1; at >= 0; at -= 1) if (one.band[at] || one.curves.some((c) => c.values[at] !== null)) return at;
  return 0;
}

// Stretches of what is known: a gap stays a gap, but for a bin between two of a slower rhythm.
function runs(values) {
  const found = [];
  let run = [], last = -9;
  values.forEach((value, at) => {
    if (value === null) return;
    if (at - last > 3 && run.length) { found.push(run); run = []; }
    run.push([at, value]);
    last = at;
  });
  return run.length ? [...found, run] : found;
}

function range(values) {
  let low = Infinity, high = -Infinity;
  for (const value of values) { low = Math.min(low, value); high = Math.max(high, value); }
  const pad = (high - low || Math.abs(high) || 1) * 0.08;
  return [low >= 0 ? Math.max(0, low - pad) : low - pad, high + pad];
}

function ticks(low, high) {
  const raw = (high - low) / 3;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((one) => one * power).find((one) => one >= raw);
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high; value += step) found.push(value);
  return found;
}
