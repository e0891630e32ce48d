// Findings and drain actions as lists: sentences, worst first.

import { findingLink, h, nodeLink } from "./dom.js";
import { plural, span } from "./format.js";

const RANK = { critical: 0, warning: 1, info: 2 };
const SILENT_S = 120; // an open finding is said again every 30 s

export const worstFirst = (a, b) => (RANK[a.severity] ?? 3) - (RANK[b.severity] ?? 3) || b.first_ts - a.first_ts;

const unfolded = new Set(); // incidents whose findings are shown, as long as the page is open

// Open findings of an open incident stand under it, which tells the cause of all of them.
function folded(all) {
  const incidents = new Map(all.filter((one) => one.members && one.state !== "closed").map((one) => [one.id, []]));
  const listed = new Map(all.flatMap((one) => incidents.has(one.id) ? one.members.map((member) => [member, one.id]) : []));
  const top = all.filter((one) => {
    const inside = one.state === "closed" ? undefined : incidents.get(one.incident) ?? incidents.get(listed.get(one.id));
    inside?.push(one);
    return !inside;
  });
  return { top, inside: (one) => incidents.get(one.id) ?? [] };
}

export const membersOf = (members, now) =>
  h("ul", { class: "findings" }, members.map((one) => findingItem(one, now, { inside: true })));

function memberList(id, members, now) {
  const toggle = (event) => unfolded[event.target.open ? "add" : "delete"](id);
  return h("details", { open: unfolded.has(id), ontoggle: toggle },
    h("summary", { "data-key": id }, `${plural(members.length, "finding")} of it`),
    membersOf(members, now));
}

export function findingItem(one, now, { members = [], inside = false } = {}) {
  const open = one.state !== "closed";
  const said = (now - one.ts) / 1e9;
  return h("li", { class: `finding ${one.severity}` },
    h("p", {}, findingLink(one.id, one.summary)),
    h("p", { class: "small" },
      h("span", { class: `sev ${one.severity}` }, one.severity), " ", one.kind.replaceAll("_", " "),
      one.cause && one.cause !== "unknown" ? `, ${one.cause.replaceAll("_", " ")}` : "",
      open ? `, open for ${span((now - one.first_ts) / 1e9)}` : `, closed ${span(said)} ago: ${one.close_reason ?? "no reason given"}`,
      `, confidence ${Math.round(one.confidence * 100)}\u00a0%, advice: ${one.advice.replaceAll("_", " ")}`,
      open && said > SILENT_S ? h("span", { class: "doubt" }, ` last said ${span(said)} ago: detect is silent`) : null,
      open && one.incident && !inside ? [", ", findingLink(one.incident, "one of several from one cause")] : null),
    members.length ? memberList(one.id, members, now) : null);
}

export function findingList(all, now, most = 200) {
  const { top, inside } = folded([...all].sort(worstFirst));
  return [
    h("ul", { class: "findings" }, top.slice(0, most).map((one) => findingItem(one, now, { members: inside(one) }))),
    top.length > most ? h("p", { class: "small" }, `${plural(top.length - most, "more finding")}`) : null,
  ];
}

export function actionList(actions, now, most = 12) {
  if (!actions.length) return [h("p", { class: "small" }, "Nothing was drained, proposed or refused in the last day.")];
  return [h("ul", { class: "actions" }, actions.slice(0, most).map((one) => h("li", {},
    one.node === "*" ? `${one.actor}:` : nodeLink(one.node), ` ${one.verdict}${one.dry_run ? " (dry run)" : ""} `,
    h("span", { class: "small" }, `${span((now - one.ts) / 1e9)} ago: ${one.why}`))))];
}
