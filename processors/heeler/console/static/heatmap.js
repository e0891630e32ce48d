// The fleet as a picture: one canvas of pixels for the cells, one above it for what a person points at.
// 100,000 cells are 100,000 small squares of a pixel buffer; only those that have changed are written again.

import { by, clean, h } from "./dom.js";
import { plural, whole } from "./format.js";
import { groups, markOf, neighbour, place } from "./layout.js";
import { HATCHED, HOLLOW, LAYERS, NODE_MARKS, Palette, STATE_WORDS } from "./palette.js";
import { JOB_NONE, JOB_SEVERAL, JOB_UNKNOWN, UNREAD } from "./store.js";

const RELAYOUT_MS = 1000; // at most so often, however fast jobs come and go

export class HeatMap {
  constructor(store, place_, said) {
    Object.assign(this, { store, said, layer: "state", mode: "partition", focus: null, hover: null, layout: null });
    this.palette = new Palette();
    this.cells = h("canvas", { class: "cells", "aria-hidden": "true" });
    this.over = h("canvas", {
      class: "over", id: "map", tabindex: 0, role: "application", "aria-roledescription": "heat map",
      "aria-label": "Heat map of all GPUs. Arrow keys go from GPU to GPU, Enter opens the node.", "aria-describedby": "said",
    });
    this.box = h("div", { class: "map" }, this.cells, this.over);
    place_.append(this.box);
    this.shape = -1;
    this.placedAt = 0;
    this.frames = { draws: 0, ms: 0, most: 0, first: null };
    this._listen();
  }

  _listen() {
    this._wake = () => this.wake();
    this.store.addEventListener("change", this._wake);
    this.store.addEventListener("findings", this._wake);
    // Its height is ours; only another width is news.
    this.sizes = new ResizeObserver(() => { if (Math.floor(this.box.clientWidth) !== this.layout?.width) this.relayout(); });
    this.sizes.observe(this.box);
    this._theme = () => { this.palette.read(); this.redraw(); };
    document.addEventListener("heeler-theme", this._theme);
    const { over } = this;
    over.addEventListener("pointermove", (event) => this.point(this.at(event)));
    over.addEventListener("pointerleave", () => this.point(null));
    over.addEventListener("click", (event) => {
      const cell = this.at(event);
      if (cell !== null) { this.setFocus(cell); this.open(cell); }
    });
    over.addEventListener("keydown", (event) => this.key(event));
    over.addEventListener("focus", () => { if (this.focus === null) this.first(); this.wake(); });
    over.addEventListener("blur", () => this.wake());
  }

  close() {
    this.store.removeEventListener("change", this._wake);
    this.store.removeEventListener("findings", this._wake);
    document.removeEventListener("heeler-theme", this._theme);
    this.sizes.disconnect();
    this.closed = true;
  }

  show(layer, mode) {
    const again = mode !== this.mode;
    Object.assign(this, { layer, mode });
    if (again) this.relayout();
    else this.redraw();
  }

  wake() {
    if (this.asked || this.closed) return;
    this.asked = true;
    requestAnimationFrame(() => { this.asked = false; this.draw(); });
  }

  redraw() { this.store.dirty.fill(1); this.blank = true; this.wake(); }

  relayout() { this.shape = -1; this.placedAt = -RELAYOUT_MS; this.wake(); }

  draw() {
    const { store } = this;
    if (!store.loaded || this.closed) return;
    const began = performance.now();
    if (this.shape !== store.shape) {
      if (began - this.placedAt >= RELAYOUT_MS) this._place(began);
      else setTimeout(() => this.wake(), RELAYOUT_MS);
    }
    if (this.layout) { this._cells(); this._over(); }
    const took = performance.now() - began;
    this.frames.first ??= this.layout ? performance.now() : null;
    this.frames.draws += 1;
    this.frames.ms += took;
    this.frames.most = Math.max(this.frames.most, took);
  }

  _place(now) {
    const { store } = this;
    const width = Math.floor(this.box.clientWidth);
    if (width < 10) return;
    const top = this.box.getBoundingClientRect().top + window.scrollY;
    const height = Math.max(240, window.innerHeight - top - 24);
    this.layout = place(store, groups(store, this.mode), width, height);
    this.shape = store.shape;
    this.placedAt = now;
    const ratio = this.ratio = Math.max(1, Math.min(2, Math.round(window.devicePixelRatio || 1)));
    for (const canvas of [this.cells, this.over]) {
      canvas.width = width * ratio;
      canvas.height = this.layout.height * ratio;
      canvas.style.width = `${width}px`;
      canvas.style.height = `${this.layout.height}px`;
    }
    this.box.style.height = `${this.layout.height}px`;
    this.pen = this.cells.getContext("2d");
    this.image = this.pen.createImageData(this.cells.width, this.cells.height);
    this.pixels = new Uint32Array(this.image.data.buffer);
    this.blank = true;
    store.dirty.fill(1);
  }

  _cells() {
    const { store, layout, palette, pixels, ratio } = this;
    if (this.blank) { pixels.fill(palette.ground); this.blank = false; }
    const size = layout.size * ratio, across = this.image.width, out = { colour: 0, fill: 0 };
    let low = Infinity, high = -1, last = -1;
    for (let cell = 0; cell < store.cells; cell += 1) {
      if (!store.dirty[cell]) continue;
      store.dirty[cell] = 0;
      if (layout.x[cell] < 0) continue;
      palette.of(store, this.layer, cell, out);
      const top = layout.y[cell] * ratio;
      paint(pixels, across, layout.x[cell] * ratio, top, size, out, palette.ground);
      low = Math.min(low, top);
      high = Math.max(high, top + size);
      const strip = layout.stripOf[cell];
      if (strip !== last) { last = strip; high = Math.max(high, this._mark(layout.strips[strip], across)); }
    }
    if (high >= 0) this.pen.putImageData(this.image, 0, 0, 0, low, across, high - low);
  }

  // What Slurm says of the node, as a line under its strip.
  _mark(strip, across) {
    const { store, layout, palette, ratio } = this;
    const name = NODE_MARKS[store.nodeStates[store.nodes.state[strip.node]]];
    const top = (strip.y + layout.deepest * layout.step + 1) * ratio;
    const thick = Math.max(1, (markOf(layout.size) - 1) * ratio);
    const colour = name ? palette.named[name] : palette.ground;
    for (let row = top; row < top + thick; row += 1) {
      const from = row * across + strip.x * ratio;
      this.pixels.fill(colour, from, from + layout.size * ratio);
    }
    return top + thick;
  }

  _over() {
    const { layout, palette, ratio, over } = this;
    const pen = over.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, layout.width, layout.height);
    pen.font = "12px system-ui, sans-serif";
    pen.textBaseline = "top";
    for (const one of layout.headings) this._heading(pen, one);
    for (const [cell, level] of this.marked()) this._ring(pen, cell, palette.levels[level], layout.size >= 5 ? 2 : 1.5);
    if (this.hover !== null && layout.x[this.hover] >= 0) this._ring(pen, this.hover, palette.soft, 1);
    if (this.focus !== null && layout.x[this.focus] >= 0 && document.activeElement === over) {
      this._ring(pen, this.focus, palette.ring, 3);
    }
  }

  _heading(pen, one) {
    const words = cut(pen, clean(one.text), one.width);
    const left = one.width - pen.measureText(words).width - 12;
    pen.fillStyle = this.palette.text;
    pen.fillText(words, one.x, one.y + 2);
    const count = plural(one.count, "GPU"), wide = pen.measureText(count).width;
    if (wide > left) return;
    pen.fillStyle = this.palette.soft;
    pen.fillText(count, one.x + one.width - wide, one.y + 2);
  }

  _ring(pen, cell, colour, thick) {
    const { layout } = this;
    pen.strokeStyle = colour;
    pen.lineWidth = thick;
    const off = thick / 2;
    pen.strokeRect(layout.x[cell] - off, layout.y[cell] - off, layout.size + thick, layout.size + thick);
  }

  // Cells with an open finding, and how bad it is. A finding is drawn as a ring, whatever the colour shows.
  *marked() {
    const { store, layout } = this;
    const worst = new Map();
    for (const finding of store.findings.values()) {
      const level = { info: 1, warning: 2, critical: 3 }[finding.severity] ?? 1;
      for (const cell of finding.cells) worst.set(cell, Math.max(level, worst.get(cell) ?? 0));
    }
    for (const [cell, level] of worst) if (layout.x[cell] >= 0) yield [cell, level];
  }

  at(event) {
    const { layout } = this;
    if (!layout) return null;
    const bounds = this.over.getBoundingClientRect();
    const px = event.clientX - bounds.left, py = event.clientY - bounds.top;
    let strip = layout.strips.find((one) => px >= one.x && px < one.x + layout.pitch && py >= one.y && py < one.y + layout.row);
    if (!strip) return null;
    return strip.cells[Math.min(strip.cells.length - 1, Math.floor((py - strip.y) / layout.step))];
  }

  point(cell) {
    if (cell === this.hover) return;
    this.hover = cell;
    this.over.style.cursor = cell === null ? "default" : "pointer";
    this.say();
    this.wake();
  }

  first() { if (this.layout?.strips.length) this.setFocus(this.layout.strips[0].cells[0]); }

  setFocus(cell) {
    this.focus = cell;
    const { layout } = this;
    if (cell !== null && layout && layout.x[cell] >= 0) {
      const top = this.over.getBoundingClientRect().top + layout.y[cell];
      if (top < 60 || top > window.innerHeight - 40) window.scrollBy({ top: top - window.innerHeight / 2 });
    }
    this.say();
    this.wake();
  }

  say() {
    const cell = this.hover ?? this.focus;
    this.said.textContent = cell === null ? "" : clean(describe(this.store, cell));
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !this.layout?.strips.length) return;
    if (this.focus === null || this.layout.x[this.focus] < 0) this.first();
    const { layout } = this;
    const at = layout.stripOf[this.focus], strip = layout.strips[at], below = strip.cells.indexOf(this.focus);
    const go = (number, row = below) => {
      const { cells } = layout.strips[number];
      this.setFocus(cells[Math.min(cells.length - 1, Math.max(0, row))]);
    };
    const { key } = event;
    if (key === "ArrowUp" && below > 0) this.setFocus(strip.cells[below - 1]);
    else if (key === "ArrowDown" && below < strip.cells.length - 1) this.setFocus(strip.cells[below + 1]);
    else if (key === "ArrowUp") { const next = neighbour(layout, at, key); if (next !== at) go(next, Infinity); }
    else if (key === "ArrowDown") { const next = neighbour(layout, at, key); if (next !== at) go(next, 0); }
    else if (key === "ArrowLeft" || key === "ArrowRight") go(neighbour(layout, at, key));
    else if (key === "Home") go(0);
    else if (key === "End") go(layout.strips.length - 1);
    else if (key === "PageUp" || key === "PageDown") this._group(strip.group + (key === "PageUp" ? -1 : 1));
    else if (key === "n" || key === "p") this.trouble(key === "n" ? 1 : -1);
    else if (key === "Enter") this.open(this.focus);
    else if (key === "j") this.openJob(this.focus);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  _group(number) {
    const found = this.layout.strips.find((one) => one.group === number);
    if (found) this.setFocus(found.cells[0]);
  }

  // To the next cell that is not well, in the order of the picture.
  trouble(step) {
    const { store, layout } = this;
    const order = layout.strips.flatMap((one) => one.cells);
    const bad = (cell) => store.layers.severity[cell] > 0 || ["lost", "hung", "stale"].includes(store.states[store.layers.state[cell]]);
    const from = order.indexOf(this.focus);
    for (let i = 1; i <= order.length; i += 1) {
      const cell = order[(from + step * i + order.length * 2) % order.length];
      if (bad(cell)) { this.setFocus(cell); return; }
    }
    this.said.textContent = "No GPU has a finding, is lost, hung or not heard of.";
  }

  open(cell) { location.hash = `#/node/${encodeURIComponent(this.store.nodes.name[this.store.nodeOf[cell]])}`; }

  openJob(cell) {
    const job = this.store.jobs.get(this.store.jobOf[cell]);
    if (job) location.hash = `#/job/${encodeURIComponent(job.id)}`;
  }
}

function paint(pixels, across, x, y, size, { colour, fill }, ground) {
  for (let row = 0; row < size; row += 1) {
    const from = (y + row) * across + x;
    if (fill === 0) { pixels.fill(colour, from, from + size); continue; }
    for (let column = 0; column < size; column += 1) {
      const edge = row === 0 || column === 0 || row === size - 1 || column === size - 1;
      const on = fill === HOLLOW && size > 3 ? edge : fill === HATCHED ? (row + column) % 4 < 2 : (row + column) % 2 === 0;
      pixels[from + column] = on ? colour : ground;
    }
  }
}

function cut(pen, text, width) {
  if (pen.measureText(text).width <= width) return text;
  let length = text.length;
  while (length > 1 && pen.measureText(`${text.slice(0, length)}…`).width > width) length = Math.floor(length * 0.9);
  return `${text.slice(0, length)}…`;
}

// A cell in words: the line under the picture, which is read out as well.
export function describe(store, cell) {
  const node = store.nodeOf[cell];
  const place_ = cell - store.nodes.start[node];
  const state = STATE_WORDS[store.states[store.layers.state[cell]]];
  const number = store.jobOf[cell], job = store.jobs.get(number);
  const held = number === JOB_UNKNOWN ? "job not known" : number === JOB_NONE ? "no job" : number === JOB_SEVERAL ? "several jobs"
    : job ? `job ${[job.id, job.name, job.user && `of ${job.user}`].filter(Boolean).join(" ")}` : "a job that has ended";
  const values = Object.entries(LAYERS).filter(([name]) => name !== "state").map(([name, layer]) => {
    const value = store.layers[name][cell];
    return `${layer.title.split(",")[0].toLowerCase()} ${value === UNREAD ? "not read" : layer.say(value)}`;
  });
  const slurm = store.nodeStates[store.nodes.state[node]];
  return `${store.nodes.name[node]} GPU ${whole(place_)}: ${state}, ${held}; Slurm: ${slurm === "unknown" ? "not known" : slurm}; ${values.join(", ")}`;
}

export const focusMap = () => by("map")?.focus();
