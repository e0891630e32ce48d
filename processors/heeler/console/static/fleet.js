// The fleet at a glance: what it amounts to in words, the heat map, and what is wrong.

import { h, refresh } from "./dom.js";
import { plural, span } from "./format.js";
import { HeatMap } from "./heatmap.js";
import { GROUPINGS } from "./layout.js";
import { actionList, findingList } from "./lists.js";
import { LAYERS } from "./palette.js";

const kept = { layer: "state", mode: "partition" }; // as long as the page is open

export function fleetView(store, main) {
  const summary = h("p", { class: "summary", "aria-live": "off" });
  const said = h("p", { id: "said", class: "said", "aria-live": "polite" });
  const legend = h("div", { class: "legend", "aria-hidden": "true" });
  const picture = h("div", { class: "picture" });
  const list = h("div"), actions = h("div");
  const choice = (name, all, value, pick) => h("label", {}, name, " ",
    h("select", { onchange: (event) => pick(event.target.value) },
      Object.entries(all).map(([key, title]) => h("option", { value: key, selected: key === value }, title))));
  const titles = Object.fromEntries(Object.entries(LAYERS).map(([key, { title }]) => [key, title]));
  const change = (part) => { Object.assign(kept, part); map.show(kept.layer, kept.mode); drawLegend(legend, kept.layer); };
  main.replaceChildren(
    h("h1", { class: "hidden" }, "Fleet"),
    summary,
    h("div", { class: "fleet" },
      h("section", { "aria-label": "Heat map" },
        h("div", { class: "controls" },
          choice("Colour", titles, kept.layer, (layer) => change({ layer })),
          choice("Group", GROUPINGS, kept.mode, (mode) => change({ mode })),
          legend),
        said, picture),
      h("aside", { "aria-label": "Open findings" },
        h("h2", {}, "Open findings"), list, h("h2", {}, "Drains"), actions)));
  const map = new HeatMap(store, picture, said);
  map.show(kept.layer, kept.mode);
  drawLegend(legend, kept.layer);
  window.heelerMap = map; // for the bench and for a person with a debugger
  const update = () => {
    if (!store.loaded) return;
    refresh(summary, words(store.counts), (text) => [text]);
    // Ages are said in their largest unit, so that the list is not made anew every second.
    const now = store.now(), findings = [...store.findings.values()];
    refresh(list, [findings, Math.floor(now / 10e9)], () => findings.length ? findingList(findings, now, 60)
      : [h("p", { class: "small" }, store.status.ready ? "No open finding on the bus." : "Not known yet: the bus is being read.")]);
    refresh(actions, [store.actions, Math.floor(now / 10e9)], () => actionList(store.actions, now));
    picture.classList.toggle("old", Boolean(store.status.bus_lost_s !== null && store.status.bus_lost_s !== undefined) || store.lost === true);
    map.say();
  };
  store.addEventListener("change", update);
  update();
  return () => { store.removeEventListener("change", update); map.close(); };
}

export function words(counts) {
  if (!counts) return "";
  const { gpus, ok, nodes, findings } = counts;
  if (!gpus.all) return `${plural(nodes.all, "node")}; no GPU has been told of yet.`;
  const parts = [[ok.in_job, "in jobs"], [ok.free, "free"], [gpus.ok - ok.in_job - ok.free, "ok, job not known"],
    [gpus.lost, "lost"], [gpus.hung, "hung"], [gpus.stale, "not heard of"], [gpus.unknown, "in a state not known"]];
  const said = parts.filter(([count]) => count > 0).map(([count, what]) => `${count.toLocaleString("en-US")} ${what}`);
  const out = ["draining", "drained", "down", "reserved"].filter((state) => nodes[state]).map((state) => `${nodes[state]} ${state}`);
  const unknown = nodes.unknown ? [`${nodes.unknown.toLocaleString("en-US")} not known to Slurm's feed`] : [];
  const wrong = ["critical", "warning", "info", "unknown"].filter((one) => findings[one]).map((one) => `${findings[one]} ${one}`);
  return `${plural(gpus.all, "GPU")} on ${plural(nodes.all, "node")}: ${said.join(", ")}. `
    + ([...out, ...unknown].length ? `Nodes: ${[...out, ...unknown].join(", ")}. ` : "")
    + `${plural(counts.jobs, "job")}. ` + (wrong.length ? `Open findings: ${wrong.join(", ")}.` : "No open finding.");
}

function drawLegend(legend, layer) {
  const swatch = (kind, text) => h("span", { class: "key" }, h("i", { class: `swatch ${kind}` }), text);
  const always = [swatch("lost", "lost"), swatch("hung", "hung"), swatch("stale", "not heard of"), swatch("unread", layer === "state" ? "state not known" : "not read")];
  const rings = [swatch("ring", "finding"), swatch("line", "drained or down")];
  if (layer === "state") {
    legend.replaceChildren(swatch("busy", "in a job"), swatch("free", "free"), swatch("held", "job not known"), ...always, ...rings);
    return;
  }
  const { low, high, say } = LAYERS[layer];
  legend.replaceChildren(h("span", { class: "key" }, say(low), h("i", { class: `ramp ${layer === "temperature" ? "heat" : "cool"}` }), say(high)), ...always, ...rings);
}

export function findingsView(store, main) {
  const open = h("div"), closed = h("div"), actions = h("div");
  main.replaceChildren(h("h1", {}, "Findings"), open, h("h2", {}, "Closed lately"), closed, h("h2", {}, "Drains of the last day"), actions);
  const update = () => {
    if (!store.loaded) return;
    const now = store.now(), tick = Math.floor(now / 10e9), findings = [...store.findings.values()];
    refresh(open, [findings, tick], () => findings.length ? findingList(findings, now, 500) : [h("p", {}, "No open finding on the bus.")]);
    refresh(closed, [store.closed, tick], () => store.closed.length ? findingList(store.closed, now, 50) : [h("p", { class: "small" }, "None.")]);
    refresh(actions, [store.actions, tick], () => actionList(store.actions, now, 50));
  };
  store.addEventListener("change", update);
  update();
  return () => store.removeEventListener("change", update);
}

export const ageWords = (seconds) => (seconds === undefined ? "never" : `${span(seconds)} ago`);
