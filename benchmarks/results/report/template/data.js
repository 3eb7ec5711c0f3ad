"use strict";
// Data files call `plait` with their name and rows: pages on disk may load scripts, not fetch.
// A page that stands alone holds the rows of each as JSON.

const arriving = new Map(); // by the name of a file: its rows, and what takes them

function plait(name, rows) {
  arriving.get(name)?.take(rows);
}

function read(name, folder = "") {
  if (!arriving.has(name)) {
    const file = {};
    file.rows = new Promise((take, refuse) => {
      const inside = document.querySelector(`script[data-file="${name}"]`);
      if (inside) return take(JSON.parse(inside.textContent));
      file.take = take;
      const script = el("script", { src: folder + name });
      const end = (reason) => { script.remove(); refuse(new Error(name + reason)); };
      script.onload = () => end(" holds no data"); // without effect once rows have arrived
      script.onerror = () => end(" cannot be read");
      document.head.append(script);
    }).finally(() => arriving.delete(name));
    arriving.set(name, file);
  }
  return arriving.get(name).rows;
}
