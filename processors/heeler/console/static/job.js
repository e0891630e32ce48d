// The page of a job: who lags, how much is lost, and its nodes.

import { h, nodeLink, refresh } from "./dom.js";
import { percent, plural, reading, span, whole } from "./format.js";
import { actionList, findingItem, worstFirst } from "./lists.js";
import { ask, facts, polling, table } from "./page.js";
import { plotsOf } from "./plot.js";

export function jobView(store, main, name) {
  const trouble = h("div"), now = h("div"), lag = h("div"), found = h("div"), noPlots = h("div"), plots = h("div", { class: "plots" }), nodes = h("div"), records = h("div");
  main.replaceChildren(h("h1", {}, h("span", { class: "kind" }, "job "), name), trouble, now,
    h("h2", {}, "Findings and what they cost"), found, h("h2", {}, "Who lags"), lag,
    h("h2", {}, "The last half hour"), noPlots, plots, h("h2", {}, "Nodes"), nodes, h("h2", {}, "Accounting"), records);
  const show = (page) => {
    refresh(now, [page.row, page.gpus, page.used, page.peers, Math.floor(page.now / 10e9)], () => [jobFacts(page)]);
    refresh(found, [page.findings, Math.floor(page.now / 10e9)], () => page.findings.length
      ? [h("ul", { class: "findings" }, [...page.findings].sort(worstFirst).map((one) => [findingItem(one, page.now), h("li", { class: "small cost" }, costWords(one.lost))])),
        page.actions.length ? actionList(page.actions, page.now) : null]
      : [h("p", { class: "small" }, "No open finding names this job.")]);
    refresh(lag, page.behind, (rows) => rows.length ? [lagTable(rows)] : [h("p", { class: "small" },
      page.peers.sm_clock_mhz.known ? `Of ${plural(page.peers.sm_clock_mhz.known, "GPU")} with a known clock none is more than 2 % below the median.` : "No clock of its GPUs is known.")]);
    refresh(nodes, [page.nodes, page.nodes_all], () => [nodeTable(page)]);
    refresh(records, page.records, (lines) => lines.length ? lines.map((one) => h("p", { class: "small" }, one)) : [h("p", { class: "small" }, "Nothing on the bus.")]);
  };
  const stop = polling(() => ask("job", { name }), show, trouble);
  const stopPlots = polling(() => ask("job_plot", { name }), (page) => refresh(plots, page, () => plotsOf(page, null)), noPlots, 20000);
  return () => { stop(); stopPlots(); };
}

function jobFacts(page) {
  const { row } = page;
  if (!row) return h("p", {}, "Neither Slurm's feed nor a sample names this job now; what is below is what the bus still has of it.");
  const [, , name, user, account, partition, state, start, nodes] = row;
  const told = page.peers.sm_active_ratio;
  return facts([
    ["name", name], ["user", [user, account && `(${account})`].filter(Boolean).join(" ")], ["partition", partition], ["QOS", page.qos],
    ["state", state ?? "not known: only samples name this job"],
    ["started", start ? `${span((page.now - start) / 1e9)} ago` : null], ["ended", page.end_ts ? `${span((page.now - page.end_ts) / 1e9)} ago` : null],
    ["runs on", `${nodes === null ? "nodes not known" : plural(nodes, "node")}, ${plural(page.gpus, "GPU")} seen in samples`],
    ["GPU time", page.used ? usedWords(page.used) : "not counted: no job summary on the bus"],
    ["SM activity", told.known ? `${percent(told.median)} in the middle, ${percent(told.p10)} to ${percent(told.p90)} for most, ${percent(told.min)} at least; ${plural(told.known, "GPU")} known` : "not read"],
  ]);
}

function usedWords({ hours, final }) {
  const all = hours.allocated;
  const part = (name) => hours[name] === null ? `${name} not known` : `${whole(hours[name])} h${all ? ` (${percent(hours[name] / all)})` : ""} ${name}`;
  return `${all === null ? "allocated not known" : `${whole(all)} GPU-hours`}${final ? "" : " so far"}: ${part("active")}, ${part("idle")}, ${part("unknown")}, of these ${part("lost")}`;
}

export function costWords(lost) {
  if (!lost) return "What it costs is not known.";
  const hours = `${whole(lost.gpu_hours)} GPU-hours so far`;
  if (lost.by === "still") return `${hours}, if it hangs: all its GPUs stand still.`;
  return lost.by === "gap" ? `At most ${hours}: ${percent(lost.share)} of the job, if all its GPUs wait for the slowest.` : `${hours}: the job runs ${percent(lost.share)} below its own pace.`;
}

const lagTable = (rows) => table([["node", ""], ["GPU", ""], ["below the median", "number"], ["SM clock", "number"], ["power", "number"], ["temperature", "number"], ["SM activity", "number"], ["UUID", "id"]],
  rows.map((one) => ({
    class: one.severity ? `level-${one.severity}` : "",
    cells: [nodeLink(one.node), one.index ?? "?", percent(-one.deviation_ratio), reading("sm_clock_mhz", one.values.sm_clock_mhz), reading("power_w", one.values.power_w),
      reading("temp_c", one.values.temp_c), reading("sm_active_ratio", one.values.sm_active_ratio), one.uuid],
  })), "GPUs with the lowest clock");

function nodeTable(page) {
  const rows = page.nodes.map((one) => ({
    class: one.severity ? `level-${one.severity}` : "",
    cells: [nodeLink(one.node), one.gpus || "none seen", one.gpus ? one.not_ok : "not known", reading("sm_active_ratio", one.sm_active_ratio), reading("tensor_active_ratio", one.tensor_active_ratio),
      reading("sm_clock_mhz", one.sm_clock_mhz), reading("power_w", one.power_w), reading("temp_c", one.temp_max_c)],
  }));
  return [
    table([["node", ""], ["GPUs", "number"], ["not ok", "number"], ["SM activity", "number"], ["tensor", "number"], ["SM clock", "number"], ["power", "number"], ["hottest", "number"]], rows, "Nodes of this job, means over its GPUs"),
    page.nodes_all > rows.length ? h("p", { class: "small" }, `${plural(page.nodes_all - rows.length, "more node")}, which stand better`) : null,
  ];
}
