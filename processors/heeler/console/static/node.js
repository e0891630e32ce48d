// The page of a node: what is known of it now, and what has happened on it.

import { h, jobLink, refresh } from "./dom.js";
import { NOT_READ, reading, span } from "./format.js";
import { actionList, findingList } from "./lists.js";
import { ask, facts, polling, table } from "./page.js";
import { STATE_WORDS } from "./palette.js";
import { timelineOf } from "./timeline.js";

const SHOWN = [["sm_active_ratio", "SM activity"], ["tensor_active_ratio", "tensor"], ["util_ratio", "utilisation"],
  ["sm_clock_mhz", "SM clock"], ["power_w", "power"], ["temp_c", "temperature"], ["fb_used_bytes", "memory"]];

export function nodeView(store, main, name) {
  let hours = "6";
  const trouble = h("div"), now = h("div"), gpus = h("div"), found = h("div"), line = h("div"), checks = h("div");
  const pick = h("fieldset", { class: "pick" }, h("legend", { class: "hidden" }, "Time shown"), ["1", "6", "24"].map((one) => h("label", {},
    h("input", { type: "radio", name: "hours", value: one, checked: one === hours, onchange: () => { hours = one; again(); } }), ` ${one} h`)));
  main.replaceChildren(h("h1", {}, h("span", { class: "kind" }, "node "), name), trouble, now,
    h("h2", {}, "GPUs"), gpus, h("h2", {}, "Findings"), found,
    h("div", { class: "between" }, h("h2", {}, "What happened"), pick), line, h("h2", {}, "Health checks"), checks);
  const show = (page) => {
    refresh(now, [page.slurm, page.drained_by, page.agent, page.jobs, Math.floor(page.now / 10e9)], () => [nodeFacts(page)]);
    refresh(gpus, page.gpus, (rows) => rows.length ? [gpuTable(rows)] : [h("p", { class: "small" }, "No sample of this node's GPUs is known.")]);
    refresh(found, [page.findings, Math.floor(page.now / 10e9)], () => page.findings.length ? findingList(page.findings, page.now, 30)
      : [h("p", { class: "small" }, "None on the bus.")]);
    refresh(line, [page.items, page.start, page.actions], () => [timelineOf(page), page.actions.length ? [h("h2", {}, "Drains"), actionList(page.actions, page.now)] : null]);
    refresh(checks, page.checks, (rows) => rows.length ? [checkTable(rows, page.now)] : [h("p", { class: "small" }, "No check has run here in the last 24 h.")]);
  };
  let stop = () => {};
  const again = () => { stop(); stop = polling(() => ask("node", { name, hours }), show, trouble); };
  again();
  return () => stop();
}

function nodeFacts(page) {
  const { slurm, agent } = page;
  const said = slurm ? [slurm.state, ...slurm.flags].join("+") : "not known: Slurm's feed has not named this node";
  const who = slurm?.reason ? `“${slurm.reason}”, set by ${slurm.reason_user ?? "somebody"}${slurm.reason_ts ? `, ${span((page.now - slurm.reason_ts) / 1e9)} ago` : ""}` : null;
  const bad = agent ? Object.entries(agent.not_ok) : [];
  const reported = agent ? `reported ${span((page.now - agent.ts) / 1e9)} ago; ${bad.length ? bad.map(([one, why]) => `${one} ${why}`).join(", ") : "all collectors ok"}` : "has never reported";
  return facts([
    ["Slurm", said], ["reason", who], ["", page.drained_by.join(" ")], ["partitions", slurm?.partitions?.join(", ")],
    ["reservation", slurm?.reservation], ["agent", reported],
    ["jobs", page.jobs.length ? page.jobs.flatMap((row) => [jobLink(row[1]), ` ${[row[2], row[3] && `of ${row[3]}`].filter(Boolean).join(" ")} `]) : "none that Slurm's feed names"],
  ]);
}

const held = (job) => (job === null ? "not known" : job === "" ? "none" : job === "several" ? "several" : jobLink(job));

function gpuTable(rows) {
  const heads = [["GPU", ""], ["state", ""], ["job", ""], ...SHOWN.map(([, title]) => [title, "number"]), ["heard", "number"], ["UUID", "id"]];
  return table(heads, rows.map((one) => ({
    class: one.severity ? `level-${one.severity}` : one.state === "ok" ? "" : `state-${one.state}`,
    cells: [one.index ?? "?", STATE_WORDS[one.state], held(one.job),
      ...SHOWN.map(([metric]) => one.values[metric] === null ? h("span", { class: "unread" }, NOT_READ) : reading(metric, one.values[metric])),
      one.age_s === null ? "never" : `${span(one.age_s)} ago`, one.uuid],
  })), "GPUs of this node");
}

const checkTable = (rows, now) => table([["check", ""], ["outcome", ""], ["phase", ""], ["when", "number"], ["why", "wide"]],
  rows.map((one) => ({ class: `outcome-${one.outcome}`, cells: [one.check, one.outcome, one.phase, `${span((now - one.ts) / 1e9)} ago`, one.why] })),
  "Last word of each check");
