"use strict";
// The data of the page: an index that is read first, text and images as they are shown.
// Every file calls `plait` with its name and rows; pages on disk may load scripts, not fetch.

const AT_ONCE = 8; // files read side by side while searching
const arriving = new Map(); // by the name of a file: its rows, and what takes them

function plait(name, rows) {
  arriving.get(name)?.take(rows);
}

function read(name) {
  if (!arriving.has(name)) {
    const file = {};
    file.rows = new Promise((take, refuse) => {
      file.take = take;
      const script = el("script", { src: "report/" + name });
      const end = (reason) => { script.remove(); refuse(new Error(name + reason)); };
      script.onload = () => end(" holds no data"); // without effect once rows have arrived
      script.onerror = () => end(" cannot be read");
      document.head.append(script);
    }).finally(() => arriving.delete(name));
    arriving.set(name, file);
  }
  return arriving.get(name).rows;
}

// Reads files; the `most` that were read last stay in memory.
function reader(most) {
  const kept = new Map();
  return (name) => {
    const rows = kept.get(name) || read(name);
    kept.delete(name);
    kept.set(name, rows);
    rows.catch(() => kept.delete(name));
    if (kept.size > most) kept.delete(kept.keys().next().value);
    return rows;
  };
}

const store = {
  index: null,
  text: reader(120),
  images: reader(16),

  fileOf(i) { return "data-" + String(Math.floor(i / this.index.chunk)).padStart(3, "0") + ".js"; },

  rowIn(rows, i) { return rows[i % this.index.chunk]; },

  async rowOf(i) { return this.illustrated(this.rowIn(await this.text(this.fileOf(i)), i)); },

  // A row with its images in place of their numbers.
  async illustrated(row) {
    const all = (lists) => Promise.all(lists.map((list) => this.placed(list)));
    const [truth, ...turns] = await all([row.truth, ...row.turns.map(([, segments]) => segments)]);
    const answers = await all(row.answers.map((answer) => answer?.segments));
    return { ...row, truth, turns: row.turns.map(([role], k) => [role, turns[k]]),
      answers: row.answers.map((answer, k) => answer && { ...answer, segments: answers[k] }) };
  },

  placed(segments) {
    return segments && Promise.all(segments.map(async (part) => typeof part !== "number" ? part
      : (await this.images(this.index.packs[Math.floor(part / this.index.pack)]))[part % this.index.pack]));
  },

  // Searches the text of entries, a few files at a time; yields {files, of, matches}.
  // Ids, which need no file, come first.
  async *search(entries, text) {
    const byFile = new Map();
    for (const i of [...entries].sort((a, b) => a - b)) {
      byFile.set(this.fileOf(i), [...(byFile.get(this.fileOf(i)) || []), i]);
    }
    const files = [...byFile.keys()];
    const named = entries.filter((i) => this.index.entries[i][0].toLowerCase().includes(text));
    yield { files: 0, of: files.length, matches: named };
    for (let start = 0; start < files.length; start += AT_ONCE) {
      const some = files.slice(start, start + AT_ONCE);
      const read = await Promise.all(some.map((name) => this.text(name)));
      const matches = some.flatMap((name, k) => byFile.get(name).filter((i) => holds(this.rowIn(read[k], i), text)));
      yield { files: start + some.length, of: files.length, matches };
    }
  },
};

// Whether any text of `value` contains `text`, which is in lower case.
function holds(value, text) {
  if (typeof value === "string") return value.toLowerCase().includes(text);
  return value !== null && typeof value === "object" && Object.values(value).some((v) => holds(v, text));
}
