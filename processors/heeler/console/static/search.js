// The search field: a combobox over what the server finds.

import { by, h } from "./dom.js";
import { ask } from "./page.js";

const PAUSE_MS = 120;

export function startSearch() {
  const field = by("search"), list = by("found");
  let timer = null, turn = 0, at = -1, shownFor = null;
  const go = (option) => { close(); field.value = ""; shownFor = null; field.blur(); location.hash = option.dataset.to; };
  const close = () => { list.hidden = true; field.setAttribute("aria-expanded", "false"); field.removeAttribute("aria-activedescendant"); at = -1; };
  const choose = (next) => {
    const options = [...list.children].filter((one) => one.dataset.to);
    if (!options.length) return;
    at = (next + options.length) % options.length;
    options.forEach((one, number) => one.setAttribute("aria-selected", String(number === at)));
    field.setAttribute("aria-activedescendant", options[at].id);
  };
  const look = async () => {
    const q = field.value.trim(), mine = (turn += 1);
    if (!q) { close(); return; }
    let items;
    try {
      const found = await ask("search", { q });
      items = found.length ? found.map(option) : [h("li", { class: "small" }, "Nothing of that name is known here.")];
    } catch (error) {
      items = [h("li", { class: "small" }, error.message)];
    }
    if (mine !== turn) return;
    shownFor = q;
    list.replaceChildren(...items);
    list.hidden = false;
    field.setAttribute("aria-expanded", "true");
    choose(0);
  };
  const option = (one, number) => {
    const page = one.kind === "gpu" ? `#/node/${encodeURIComponent(one.node)}` : `#/${one.kind}/${encodeURIComponent(one.name)}`;
    const item = h("li", { role: "option", id: `found-${number}`, "data-to": page, "aria-selected": "false" },
      h("span", { class: "kind" }, one.kind), " ", h("span", { class: "name" }, one.name), " ", h("span", { class: "small" }, one.about ?? one.node ?? ""));
    item.addEventListener("pointerdown", (event) => { event.preventDefault(); go(item); });
    return item;
  };
  // Who types fast and presses Enter means what stands in the field, not what was found for the half of it.
  const enter = async () => {
    if (field.value.trim() !== shownFor) { clearTimeout(timer); await look(); }
    const option = [...list.children].filter((one) => one.dataset.to)[at];
    if (option && field.value.trim() === shownFor) go(option);
  };
  field.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(look, PAUSE_MS); });
  field.addEventListener("blur", close);
  field.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") { choose(at + (event.key === "ArrowDown" ? 1 : -1)); event.preventDefault(); }
    if (event.key === "Enter") { event.preventDefault(); enter(); }
    if (event.key === "Escape") { if (list.hidden) field.blur(); close(); }
  });
}
