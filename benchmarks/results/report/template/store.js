"use strict";
// The data of the page: an index that is there from the start, text that comes in chunks.
// Data files call plait.index and plait.chunk; pages on disk may load scripts, not fetch.

const MOST_CHUNKS = 120; // kept in memory; the oldest go first
const AT_ONCE = 8; // files read side by side while searching

const store = {
  index: null,
  chunks: new Map(),

  // The rows of one chunk. Those read last stay in memory.
  load(number) {
    const chunk = this.chunks.get(number) || this.read(number);
    this.chunks.delete(number);
    this.chunks.set(number, chunk);
    if (this.chunks.size > MOST_CHUNKS) this.forgetOldest();
    return chunk.promise;
  },

  read(number) {
    const chunk = { rows: null };
    chunk.promise = new Promise((resolve, reject) => {
      const name = "report/data-" + String(number).padStart(3, "0") + ".js";
      chunk.resolve = resolve;
      const fail = (reason) => { this.chunks.delete(number); reject(new Error(name + reason)); };
      const script = el("script", { src: name });
      script.onload = () => { script.remove(); if (!chunk.rows) fail(" holds no data"); };
      script.onerror = () => { script.remove(); fail(" cannot be read"); };
      document.head.append(script);
    });
    return chunk;
  },

  forgetOldest() {
    for (const [number, chunk] of this.chunks) {
      if (chunk.rows) { this.chunks.delete(number); return; }
    }
  },

  chunkOf(i) { return Math.floor(i / this.index.chunk); },

  rowsOf(entries) {
    return Promise.all(entries.map(async (i) => (await this.load(this.chunkOf(i)))[i % this.index.chunk]));
  },

  // Searches the text of entries, a few files at a time; yields {files, of, matches}.
  // Ids, which need no file, come first.
  async *search(entries, text) {
    const byChunk = new Map();
    for (const i of entries) {
      if (!byChunk.has(this.chunkOf(i))) byChunk.set(this.chunkOf(i), []);
      byChunk.get(this.chunkOf(i)).push(i);
    }
    const numbers = [...byChunk.keys()].sort((a, b) => a - b);
    const named = entries.filter((i) => this.index.entries[i][0].toLowerCase().includes(text));
    yield { files: 0, of: numbers.length, matches: named };
    for (let start = 0; start < numbers.length; start += AT_ONCE) {
      const some = numbers.slice(start, start + AT_ONCE);
      const rows = await Promise.all(some.map((number) => this.load(number)));
      const matches = some.flatMap((number, k) => byChunk.get(number).filter((i) =>
        holds(rows[k][i % this.index.chunk], text)));
      yield { files: start + some.length, of: numbers.length, matches };
    }
  },
};

// Whether any text of `value` contains `text`, which is in lower case.
function holds(value, text) {
  if (typeof value === "string") return value.toLowerCase().includes(text);
  return value !== null && typeof value === "object" && Object.values(value).some((v) => holds(v, text));
}

const plait = {
  index(index) {
    store.index = index;
    start();
  },
  chunk(number, rows) {
    const chunk = store.chunks.get(number);
    if (!chunk) return; // forgotten before it arrived
    chunk.rows = rows;
    chunk.resolve(rows);
  },
};

window.addEventListener("error", (event) => {
  if (event.target.id === "index") $("loading").textContent = 'The folder "report" must be beside this file.';
}, true);
