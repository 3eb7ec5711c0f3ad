"use strict";
// Light or dark: as the system prefers until the reader chooses.
{
  const { dataset } = document.documentElement;
  let kept = {};
  try { kept = localStorage; } catch { /* some browsers keep nothing for pages on disk */ }
  dataset.theme = kept["plait-theme"] || "";
  $("theme").addEventListener("click", () => {
    const preferred = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
    dataset.theme = kept["plait-theme"] = (dataset.theme || preferred) === "dark" ? "light" : "dark";
  });
}
