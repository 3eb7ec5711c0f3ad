"use strict";
// The data of the page: an index that is there from the start, text that comes in chunks.
// Data files call plait.index and plait.chunk; pages on disk may load scripts, not fetch.

const store = {
  index: null,
  chunks: new Map(),
  texts: new Map(),

  load(number) {
    if (this.chunks.has(number)) return this.chunks.get(number).promise;
    const held = { rows: null };
    held.promise = new Promise((resolve, reject) => {
      const name = "report/data-" + String(number).padStart(3, "0") + ".js";
      held.resolve = resolve;
      const fail = (said) => { this.chunks.delete(number); reject(new Error(name + said)); };
      const script = el("script", { src: name });
      script.onload = () => held.rows ? script.remove() : fail(" holds no data");
      script.onerror = () => fail(" cannot be read");
      document.head.append(script);
    });
    this.chunks.set(number, held);
    return held.promise;
  },

  loadFor(entries) {
    const numbers = new Set(entries.map((i) => Math.floor(i / this.index.chunk)));
    return Promise.all([...numbers].map((number) => this.load(number)));
  },

  async loadAll(onProgress) {
    const count = Math.ceil(this.index.entries.length / this.index.chunk);
    for (let number = 0; number < count; number += 1) {
      if (this.chunks.get(number)?.rows) continue;
      onProgress(number, count);
      await this.load(number);
    }
  },

  row(i) {
    return this.chunks.get(Math.floor(i / this.index.chunk)).rows[i % this.index.chunk];
  },

  // All text of an entry in lower case.
  haystack(i) {
    if (!this.texts.has(i)) {
      const found = [this.index.entries[i][0]];
      const walk = (value) => {
        if (typeof value === "string") found.push(value);
        else if (value && typeof value === "object") Object.values(value).forEach(walk);
      };
      walk(this.row(i));
      this.texts.set(i, found.join("\n").toLowerCase());
    }
    return this.texts.get(i);
  },
};

const plait = {
  index(found) {
    store.index = found;
    start();
  },
  chunk(number, rows) {
    const held = store.chunks.get(number);
    held.rows = rows;
    held.resolve(rows);
  },
};

window.addEventListener("error", (event) => {
  if (event.target.id === "index") $("loading").textContent = 'The folder "report" must lie beside this file.';
}, true);
