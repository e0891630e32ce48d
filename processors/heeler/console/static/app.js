// Starts the page: the store, the wire, the views by the address after #, keys, theme, and what is wrong with the data.

import { by, clean, h, refresh } from "./dom.js";
import { findingView } from "./finding.js";
import { findingsView, fleetView } from "./fleet.js";
import { clock, span } from "./format.js";
import { focusMap } from "./heatmap.js";
import { jobView } from "./job.js";
import { nodeView } from "./node.js";
import { startSearch } from "./search.js";
import { Store } from "./store.js";
import { Wire } from "./wire.js";

const SAMPLES_S = 45, SLURM_S = 180;
const store = new Store(), wire = new Wire(store);
const main = by("main");
let leave = () => {};

function route() {
  const [, view, name = ""] = /^#\/(\w*)\/?(.*)$/.exec(location.hash) ?? [null, "", ""];
  leave();
  let about = name;
  try { about = decodeURIComponent(name); } catch { /* an address that somebody mistyped: taken as it stands */ }
  const views = { node: nodeView, job: jobView, finding: findingView, findings: findingsView };
  leave = (views[view] ?? fleetView)(store, main, about);
  document.title = about && views[view] ? clean(`${view} ${about} – Heeler`) : "Heeler";
  for (const link of document.querySelectorAll("nav a")) {
    const here = link.getAttribute("href") === (view === "findings" || view === "finding" ? "#/findings" : "#/");
    if (here) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  }
  window.scrollTo(0, 0);
}

// What a person must know before believing what is shown.
function troubles() {
  const { status } = store;
  const found = [];
  const lost = wire.lostAt !== null;
  store.lost = lost;
  if (lost) {
    const since = (performance.now() - wire.lostAt) / 1000;
    found.push(`${wire.why || "the console does not answer"}: what you see is ${store.loaded ? `${span(since)} old` : "nothing yet"}.`);
  }
  if (!status) return found;
  if (!lost && status.bus_lost_s !== null) found.push(`The bus has been away for ${span(status.bus_lost_s)}: what you see is at least that old.`);
  if (!status.ready) found.push("The bus is being read: what is not shown yet is not known.");
  const samples = status.ages_s.JobSample;
  if (status.ready && status.bus_lost_s === null) {
    if (samples === undefined) found.push("No GPU sample is on the bus: is enrich running?");
    else if (samples > SAMPLES_S) found.push(`No GPU sample for ${span(samples)}: is enrich running?`);
  }
  if (status.ready && !status.controllers.length) found.push("No Slurm feed has reported: what Slurm says of jobs and nodes is not known.");
  for (const one of status.controllers) {
    if (one.state !== "up") found.push(`Slurm's controller (feed ${one.feed}) is ${one.state}${one.why ? `: ${one.why}` : ""}. Jobs and nodes are shown as last told.`);
    else if (one.age_s > SLURM_S) found.push(`The Slurm feed ${one.feed} has said nothing for ${span(one.age_s)}.`);
  }
  if (status.clusters.length > 1) found.push(`Several clusters are on this bus (${status.clusters.join(", ")}): names may meet. Set console.cluster.`);
  if (status.beyond) found.push(`${status.beyond.toLocaleString("en-US")} messages had no room here: not all is shown.`);
  return found;
}

function head() {
  const found = troubles();
  refresh(by("trouble"), found, (lines) => lines.map((one) => h("p", {}, one)));
  const { status } = store;
  by("cluster").textContent = clean(status?.clusters.join(", ") ?? "");
  const samples = status?.ages_s.JobSample;
  const live = wire.lostAt === null && status?.ready && status.bus_lost_s === null;
  by("live").className = live ? "live" : "live off";
  by("live").textContent = !store.loaded ? "" : `${live ? "live" : "not live"} · ${clock(store.now())} · samples ${samples === undefined ? "never" : `${samples < 1 ? "<1" : Math.round(samples)} s ago`}`;
}

function theme(next) {
  const root = document.documentElement;
  const dark = () => (root.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  if (next) {
    root.dataset.theme = dark() ? "light" : "dark";
    try { localStorage.setItem("heeler.theme", root.dataset.theme); } catch { /* for this visit only */ }
  }
  by("theme").textContent = dark() ? "light" : "dark";
  document.dispatchEvent(new Event("heeler-theme"));
}

function keys(event) {
  const typing = event.target.closest?.("input, select, textarea");
  if (event.key === "Escape" && typing) { event.target.blur(); return; }
  if (typing || event.ctrlKey || event.metaKey || event.altKey || by("keys").open) return;
  const act = { "/": () => by("search").focus(), m: focusMap, g: () => { location.hash = "#/"; }, t: () => theme(true), "?": () => by("keys").showModal() }[event.key];
  if (act) { event.preventDefault(); act(); }
}

window.addEventListener("hashchange", () => {
  route();
  if (document.activeElement?.tagName !== "INPUT") main.focus({ preventScroll: true }); // who types already goes on
});
document.addEventListener("keydown", keys);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => theme(false));
by("theme").addEventListener("click", () => theme(true));
by("help").addEventListener("click", () => by("keys").showModal());
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
store.addEventListener("change", head);
theme(false);
startSearch();
route();
wire.start();
