// Elements are made here, and text only ever becomes a text node: no name from the bus can turn into markup.

// Characters that nobody sees and that turn the words around them: shown as what they are, a character out of place.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g;
export const clean = (text) => String(text).replace(HIDDEN, "\ufffd");

const SVG = "http://www.w3.org/2000/svg";

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) {
      element.append(child instanceof Node ? child : document.createTextNode(clean(child)));
    }
  }
  return element;
}

export const h = (tag, properties, ...children) => fill(document.createElement(tag), properties, children);
export const svg = (tag, properties, ...children) => fill(document.createElementNS(SVG, tag), properties, children);
export const by = (id) => document.getElementById(id);

export const nodeLink = (name) => h("a", { href: `#/node/${encodeURIComponent(name)}`, class: "name" }, name);
export const jobLink = (id, more) => h("a", { href: `#/job/${encodeURIComponent(id)}`, class: "name" }, more ?? id);
export const findingLink = (id, text) => h("a", { href: `#/finding/${encodeURIComponent(id)}` }, text);

// Puts fresh content into a place, unless the data behind it is the same; the focus stays on the link or fold that had it.
const shown = new WeakMap();
export function refresh(place, data, build) {
  const key = JSON.stringify(data);
  if (shown.get(place) === key) return;
  shown.set(place, key);
  const name = (element) => element.getAttribute("href") ?? element.dataset.key ?? null;
  const held = place.contains(document.activeElement) ? name(document.activeElement) : null;
  place.replaceChildren(...[build(data)].flat(Infinity).filter((one) => one !== null && one !== undefined));
  if (held !== null) [...place.querySelectorAll("a, summary")].find((one) => name(one) === held)?.focus();
}
