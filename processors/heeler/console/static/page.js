// What the pages of a node, a job and a finding share: they ask the server every few seconds while they are seen.

import { h } from "./dom.js";

export const EVERY_MS = 5000;

export async function ask(question, parameters) {
  let answer;
  try {
    answer = await fetch(`/api/${question}?${new URLSearchParams(parameters)}`);
  } catch {
    throw new Error("The console does not answer.");
  }
  const found = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(found.error ?? `the console answers ${answer.status}`), { status: answer.status });
  return found;
}

// Asks at once and then every few seconds; says what went wrong in the place, and keeps what was shown.
export function polling(get, show, trouble, every = EVERY_MS) {
  let timer = null, ended = false;
  const turn = async () => {
    try {
      if (!document.hidden) {
        const found = await get();
        if (ended) return;
        trouble.replaceChildren();
        show(found);
      }
    } catch (error) {
      if (ended) return;
      trouble.replaceChildren(h("p", { class: "trouble" }, error.message));
    }
    if (!ended) timer = setTimeout(turn, every);
  };
  turn();
  return () => { ended = true; clearTimeout(timer); };
}

export const facts = (pairs) => h("dl", { class: "facts" }, pairs.filter(([, value]) => value !== null && value !== undefined && value !== "")
  .map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));

export function table(heads, rows, label) {
  return h("div", { class: "scroll" }, h("table", { "aria-label": label },
    h("thead", {}, h("tr", {}, heads.map(([text, kind]) => h("th", { class: kind, scope: "col" }, text)))),
    h("tbody", {}, rows.map((row) => h("tr", { class: row.class },
      row.cells.map((cell, at) => h("td", { class: heads[at][1] }, cell)))))));
}
