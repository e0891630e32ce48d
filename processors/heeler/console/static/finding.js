// The page of a finding: the sentence, the curve behind it, the numbers, and what was done.

import { findingLink, h, jobLink, nodeLink, refresh } from "./dom.js";
import { span } from "./format.js";
import { costWords } from "./job.js";
import { actionList, membersOf, worstFirst } from "./lists.js";
import { ask, facts, polling } from "./page.js";
import { plotsOf } from "./plot.js";

export function findingView(store, main, id) {
  const trouble = h("div"), what = h("div"), noPlots = h("div"), members = h("div"), plots = h("div", { class: "plots" }), proof = h("div"), done = h("div");
  main.replaceChildren(trouble, what, members, h("h2", {}, "Over time"), noPlots, plots, h("h2", {}, "Evidence"), proof, h("h2", {}, "Drains"), done);
  plots.append(h("p", { class: "small" }, "Reading the samples that the bus keeps."));
  const show = (page) => {
    refresh(members, [page.members, Math.floor(page.now / 10e9)], () => page.members.length
      ? [h("h2", {}, "Its findings"), membersOf([...page.members].sort(worstFirst), page.now)] : []);
    refresh(what, [page.finding, page.lost, page.incident, Math.floor(page.now / 10e9)], () => [sentence(page)]);
    refresh(proof, page.evidence, (items) => items.length ? [h("ul", {}, items.map((one) => h("li", {}, one.words)))] : [h("p", { class: "small" }, "None was given.")]);
    refresh(done, [page.actions, Math.floor(page.now / 10e9)], () => actionList(page.actions, page.now));
  };
  const stop = polling(() => ask("finding", { id }), show, trouble);
  const stopPlots = polling(() => ask("finding_plot", { id }), (page) => refresh(plots, page, () => plotsOf(page, page.first_ts)), noPlots, 15000);
  return () => { stop(); stopPlots(); };
}

function sentence({ finding, lost, incident, now }) {
  const { entity } = finding;
  const open = finding.state !== "closed";
  return h("article", { class: `finding ${finding.severity}` },
    h("h1", {}, finding.summary),
    facts([
      ["kind", `${finding.kind} (${finding.severity}, confidence ${Math.round(finding.confidence * 100)}\u00a0%)`],
      ["cause", finding.cause === "unknown" ? "not known" : finding.cause?.replaceAll("_", " ")],
      [open ? "open for" : "closed", open ? span((now - finding.first_ts) / 1e9) : `${span((now - finding.ts) / 1e9)} ago: ${finding.close_reason ?? "no reason given"}`],
      ["last said", open ? `${span((now - finding.ts) / 1e9)} ago` : null],
      ["advice", finding.advice.replaceAll("_", " ")],
      ["node", finding.node ? nodeLink(finding.node) : null],
      ["GPU", entity.gpu_uuid ? `${entity.gpu_index ?? "?"} (${entity.gpu_uuid})` : null],
      ["port", entity.port], ["job", finding.job_id ? jobLink(finding.job_id) : null],
      ["part of", incident ? findingLink(incident.id, incident.summary) : null],
      ["cost", finding.job_id ? costWords(lost) : null],
    ]));
}
