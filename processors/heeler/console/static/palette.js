// Colours of cells, from the style sheet's variables, so that light and dark are said in one place.

import { UNREAD } from "./store.js";

// Layer: what it is called, the value of its first and last colour, and how a step is said.
export const LAYERS = {
  state: { title: "State" },
  activity: { title: "SM activity", low: 0, high: 200, say: (v) => `${Math.round(v / 2)}\u00a0%` },
  utilisation: { title: "Utilisation", low: 0, high: 200, say: (v) => `${Math.round(v / 2)}\u00a0%` },
  temperature: { title: "Temperature", low: 30, high: 90, say: (v) => `${v}\u00a0°C` },
  power: { title: "Power, of its limit", low: 0, high: 200, say: (v) => `${Math.round(v / 2)}\u00a0%` },
  clock: { title: "SM clock, of the highest", low: 80, high: 200, say: (v) => `${Math.round(v / 2)}\u00a0%` },
  memory: { title: "Memory in use", low: 0, high: 200, say: (v) => `${Math.round(v / 2)}\u00a0%` },
};

export const STATE_WORDS = {
  ok: "ok", lost: "lost", hung: "hung", stale: "not heard of", unknown: "state not known",
};

// Node states that get a line under their strip, by the name of their colour.
export const NODE_MARKS = { draining: "warn", drained: "warn", down: "bad", reserved: "info", gone: "muted" };

const HATCHED = 1, HOLLOW = 2;
export { HATCHED, HOLLOW };

function parse(text) {
  const found = /^#([0-9a-f]{6})$/i.exec(text.trim());
  const value = found ? Number.parseInt(found[1], 16) : 0x808080;
  return [(value >> 16) & 255, (value >> 8) & 255, value & 255];
}

const pack = ([r, g, b]) => ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0; // little-endian RGBA

function between(stops, at) {
  const place = at * (stops.length - 1);
  const from = Math.min(Math.floor(place), stops.length - 2);
  const part = place - from;
  return stops[from].map((v, i) => Math.round(v + (stops[from + 1][i] - v) * part));
}

export class Palette {
  constructor() { this.read(); }

  read() {
    const style = getComputedStyle(document.documentElement);
    const rgb = (name) => parse(style.getPropertyValue(`--${name}`));
    this.rgb = rgb;
    this.ground = pack(rgb("ground"));
    this.text = style.getPropertyValue("--ink").trim();
    this.soft = style.getPropertyValue("--soft").trim();
    this.ring = style.getPropertyValue("--focus").trim();
    this.levels = [null, "--info", "--warn", "--bad"].map((name) => (name ? style.getPropertyValue(name).trim() : null));
    this.named = {};
    for (const name of ["busy", "free", "held", "lost", "hung", "unread", "warn", "bad", "info", "muted"]) {
      this.named[name] = pack(rgb(name));
    }
    const cool = ["scale-0", "scale-1", "scale-2", "scale-3"].map(rgb);
    const warm = ["heat-0", "heat-1", "heat-2", "heat-3"].map(rgb);
    this.tables = {};
    for (const [name, layer] of Object.entries(LAYERS)) {
      if (layer.low === undefined) continue;
      const table = new Uint32Array(256);
      for (let v = 0; v < 256; v += 1) {
        const at = Math.min(1, Math.max(0, (v - layer.low) / (layer.high - layer.low)));
        table[v] = pack(between(name === "temperature" ? warm : cool, at));
      }
      this.tables[name] = table;
    }
  }

  // The colour of a cell and the way it is filled: what is not known never looks like a value.
  of(store, layer, cell, out) {
    const state = store.states[store.layers.state[cell]];
    out.fill = 0;
    if (state === "lost" || state === "hung") { out.colour = this.named[state]; return; }
    if (state === "stale") { out.colour = this.named.unread; out.fill = HOLLOW; return; }
    if (layer === "state") {
      if (state !== "ok") { out.colour = this.named.unread; out.fill = HATCHED; return; }
      const job = store.jobOf[cell];
      out.colour = job === 0 ? this.named.held : job === 1 ? this.named.free : this.named.busy;
      return;
    }
    const value = store.layers[layer][cell];
    if (value === UNREAD) { out.colour = this.named.unread; out.fill = HATCHED; return; }
    out.colour = this.tables[layer][value];
  }
}
