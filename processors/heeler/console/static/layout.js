// Where each cell goes: pure. A strip is a node's GPUs, or those of them that a group has, one below the other; strips
// flow from left to right in groups, and the cells are as large as lets all of them be seen at once.

import { JOB_NONE, JOB_SEVERAL, JOB_UNKNOWN, NO_CELL } from "./store.js";

const SIZES = [18, 16, 14, 12, 10, 9, 8, 7, 6, 5, 4, 3, 2];
const HEADING = 20, AFTER_GROUP = 10, BETWEEN = 14, LEAST_WIDTH = 120;
const MOST_GROUPS = 40; // with a heading of their own

export const GROUPINGS = { partition: "By partition", job: "By job", none: "All nodes" };

// Groups as {label, kind, id, strips: [[cells]]}.
export function groups(store, mode) {
  if (mode === "job") return byJob(store);
  const found = new Map();
  for (let node = 0; node < store.nodes.name.length; node += 1) {
    const cells = store.cellsOf(node);
    if (!cells.length) continue;
    const name = mode === "partition" ? (store.nodes.partitions[node][0] ?? "") : "";
    if (!found.has(name)) found.set(name, []);
    found.get(name).push(cells);
  }
  const label = (name) => (mode === "none" ? "" : name === "" ? "Partition not known" : name);
  return [...found].sort((a, b) => (a[0] === "") - (b[0] === "") || b[1].length - a[1].length || (a[0] < b[0] ? -1 : 1))
    .map(([name, strips]) => ({ label: label(name), kind: "partition", id: name, strips }));
}

function byJob(store) {
  const found = new Map(); // job number: strips
  for (let node = 0; node < store.nodes.name.length; node += 1) {
    const mine = new Map();
    for (const cell of store.cellsOf(node)) {
      const job = store.jobOf[cell];
      if (!mine.has(job)) mine.set(job, []);
      mine.get(job).push(cell);
    }
    for (const [job, cells] of mine) {
      if (!found.has(job)) found.set(job, []);
      found.get(job).push(cells);
    }
  }
  const rest = [[JOB_SEVERAL, "Several jobs on one GPU"], [JOB_NONE, "No job"], [JOB_UNKNOWN, "Job not known"]];
  const special = rest.filter(([job]) => found.has(job)).map(([job, label]) => ({ label, kind: "rest", id: job, strips: found.get(job) }));
  const jobs = [...found].filter(([job]) => job > JOB_SEVERAL).sort((a, b) => b[1].length - a[1].length || a[0] - b[0]);
  const large = jobs.slice(0, MOST_GROUPS).map(([job, strips]) => ({ ...titled(store, job), strips }));
  const small = jobs.slice(MOST_GROUPS);
  if (small.length) {
    large.push({ label: `${small.length.toLocaleString("en-US")} smaller jobs`, kind: "jobs", id: null, strips: small.flatMap(([, strips]) => strips) });
  }
  return [...large, ...special];
}

function titled(store, number) {
  const job = store.jobs.get(number);
  if (!job) return { label: "A job that has ended", kind: "rest", id: number };
  const more = [job.name, job.user && `of ${job.user}`].filter(Boolean).join(" ");
  return { label: more ? `${job.id}  ${more}` : job.id, kind: "job", id: job.id };
}

// Places for a width and a height: the largest cells with which all fits, else the smallest, and the page scrolls.
export function place(store, all, width, height) {
  const deepest = all.reduce((most, group) => group.strips.reduce((m, cells) => Math.max(m, cells.length), most), 1);
  let size = SIZES.at(-1);
  for (const candidate of SIZES) {
    if (shelves(all, candidate, deepest, width).height <= height) { size = candidate; break; }
  }
  return placed(store, all, size, deepest, width);
}

const gapOf = (size) => (size >= 6 ? 1 : 0);
// Too small for gaps, nodes stand wall to wall: then colours are read, not nodes.
const pitchOf = (size) => size + (size >= 10 ? 4 : size >= 5 ? 2 : size >= 4 ? 1 : 0);
const rowOf = (size, deepest) => deepest * (size + gapOf(size)) + markOf(size) + (size >= 6 ? 8 : 3);
export const markOf = (size) => (size >= 6 ? 3 : 2);

// Groups stand side by side on shelves while there is room; one that is wider than the picture has rows of its own.
function shelves(all, size, deepest, width) {
  const pitch = pitchOf(size), row = rowOf(size, deepest), across = Math.max(1, Math.floor(width / pitch));
  const boxes = [];
  let x = 0, top = 0, below = 0;
  for (const group of all) {
    const wide = Math.max(group.strips.length * pitch, group.label ? LEAST_WIDTH : 0);
    if (x > 0 && x + wide > width) { x = 0; top = below; }
    const rows = Math.ceil(group.strips.length / across);
    boxes.push({ x, y: top, width: Math.min(wide, width), heading: group.label ? HEADING : 0 });
    below = Math.max(below, top + (group.label ? HEADING : 0) + rows * row + AFTER_GROUP);
    x += wide + BETWEEN;
  }
  return { boxes, height: Math.max(below, 1) };
}

function placed(store, all, size, deepest, width) {
  const pitch = pitchOf(size), step = size + gapOf(size), row = rowOf(size, deepest);
  const across = Math.max(1, Math.floor(width / pitch));
  const x = new Int32Array(store.cells).fill(-1), y = new Int32Array(store.cells);
  const stripOf = new Int32Array(store.cells).fill(-1);
  const strips = [], headings = [];
  const { boxes, height } = shelves(all, size, deepest, width);
  all.forEach((group, number) => {
    const box = boxes[number], top = box.y + box.heading;
    if (group.label) headings.push({ ...box, text: group.label, count: group.strips.reduce((sum, cells) => sum + cells.length, 0), group: number });
    group.strips.forEach((cells, at) => {
      const strip = { x: box.x + (at % across) * pitch, y: top + Math.floor(at / across) * row, cells, group: number, node: store.nodeOf[cells[0]] };
      cells.forEach((cell, below) => {
        x[cell] = strip.x;
        y[cell] = strip.y + below * step;
        stripOf[cell] = strips.length;
      });
      strips.push(strip);
    });
  });
  return { size, step, pitch, row, across, deepest, x, y, stripOf, strips, headings, groups: all, width, height };
}

// The next strip in a direction from one: rows are compared by their place, so that groups are passed over.
export function neighbour(layout, from, key) {
  const { strips } = layout;
  if (key === "ArrowLeft") return Math.max(0, from - 1);
  if (key === "ArrowRight") return Math.min(strips.length - 1, from + 1);
  const here = strips[from];
  const down = key === "ArrowDown";
  let best = -1;
  const better = (one) => {
    const a = strips[one], b = strips[best];
    const rows = Math.abs(a.y - here.y) - Math.abs(b.y - here.y);
    return rows < 0 || (rows === 0 && Math.abs(a.x - here.x) < Math.abs(b.x - here.x));
  };
  for (let one = 0; one < strips.length; one += 1) {
    if (down ? strips[one].y <= here.y : strips[one].y >= here.y) continue;
    if (best < 0 || better(one)) best = one;
  }
  return best < 0 ? from : best;
}

export const isCell = (store, cell) => store.layers.state[cell] !== NO_CELL;
