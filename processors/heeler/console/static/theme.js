// Runs before the first paint, so that a dark page does not flash white. A choice made here goes before the system's.
"use strict";
(() => {
  let chosen = null;
  try { chosen = localStorage.getItem("heeler.theme"); } catch { /* no storage: the system's choice holds */ }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
