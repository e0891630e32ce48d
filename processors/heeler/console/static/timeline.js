// What happened on a node: lanes over time, and the same as a list, which is what a screen reader gets.

import { by, findingLink, h, jobLink, svg } from "./dom.js";
import { day, moment, plural } from "./format.js";

const LANE = 26, LEFT = 84, AXIS = 22;
const LANES = { jobs: "jobs", slurm: "Slurm", findings: "findings", kernel: "kernel", checks: "checks", drain: "drains" };
const MOST = 120;

export function timelineOf({ items, start, now }) {
  const W = Math.max(560, by("main").clientWidth - 48);
  const lanes = Object.keys(LANES);
  const height = lanes.length * LANE + AXIS;
  const x = (ts) => LEFT + Math.min(1, Math.max(0, (ts - start) / (now - start))) * (W - LEFT - 4);
  const picture = svg("svg", { viewBox: `0 0 ${W} ${height}`, width: W, class: "timeline", role: "img", "aria-label": "Time line of this node; the list below has the same" },
    lanes.map((lane, at) => [
      svg("text", { x: 0, y: at * LANE + 17 }, LANES[lane]),
      svg("line", { class: "grid", x1: LEFT, x2: W, y1: (at + 1) * LANE, y2: (at + 1) * LANE }),
    ]),
    [0, 1, 2, 3, 4].map((part) => svg("text", { x: x(start + (now - start) * part / 4), y: height - 6, "text-anchor": part === 4 ? "end" : part === 0 ? "start" : "middle" },
      day(start + (now - start) * part / 4))),
    [...items].sort((a, b) => (a.level ?? -1) - (b.level ?? -1)).map((one) => mark(one, x, lanes.indexOf(one.lane) * LANE, now)));
  const newest = [...items].sort((a, b) => b.from - a.from);
  return [
    picture,
    newest.length ? h("ol", { class: "events" }, newest.slice(0, MOST).map(row)) : h("p", { class: "small" }, "Nothing in this time."),
    newest.length > MOST ? h("p", { class: "small" }, `${plural(newest.length - MOST, "earlier entry", "earlier entries")} not listed`) : null,
  ];
}

function mark(one, x, top, now) {
  const level = `level ${one.level === null ? "none" : `l${one.level}`} ${one.lane}`;
  const title = svg("title", {}, `${moment(one.from)}: ${one.text}`);
  if (one.to === one.from) return svg("rect", { class: level, x: x(one.from) - 1.5, y: top + 5, width: 3, height: LANE - 9 }, title);
  const from = x(one.from), to = x(one.to ?? now);
  return svg("rect", { class: level, x: from, y: top + 7, width: Math.max(3, to - from), height: LANE - 13, rx: 2 }, title);
}

function row(one) {
  const words = one.job ? jobLink(one.job, one.text) : one.finding ? findingLink(one.finding, one.text) : one.text;
  return h("li", {}, h("time", {}, moment(one.from)), h("span", { class: `lane ${one.level === null ? "" : `l${one.level}`}` }, LANES[one.lane]), h("span", { class: "words" }, words));
}
