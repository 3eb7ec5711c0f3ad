"use strict";
// Light or dark: as the system prefers until the reader chooses.

(() => {
  // Some browsers keep no storage for pages on disk.
  const remembered = (value) => {
    try {
      if (value) localStorage.setItem("plait-theme", value);
      return localStorage.getItem("plait-theme");
    } catch {
      return null;
    }
  };
  const root = document.documentElement;
  const known = remembered();
  if (known) root.dataset.theme = known;
  $("theme").addEventListener("click", () => {
    const preferred = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
    root.dataset.theme = (root.dataset.theme || preferred) === "dark" ? "light" : "dark";
    remembered(root.dataset.theme);
  });
})();
