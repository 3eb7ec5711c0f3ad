"use strict";
// The data of the page: an index that is read first, text and images as they are shown.

const AT_ONCE = 8; // files read side by side while searching
// Reads files; the `most` that were read last stay in memory.
function reader(most) {
  const kept = new Map();
  return (name) => {
    const rows = kept.get(name) || read(name, "report/");
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
    const answers = await Promise.all(row.answers.map((own) => all(own.map((answer) => answer?.segments))));
    return { ...row, truth, turns: row.turns.map(([role], k) => [role, turns[k]]),
      answers: row.answers.map((own, i) => own.map((answer, k) => answer && { ...answer, segments: answers[i][k] })) };
  },

  placed(segments) {
    return segments && Promise.all(segments.map(async (part) => typeof part !== "number" ? part
      : (await this.images(this.index.packs[Math.floor(part / this.index.pack)]))[part % this.index.pack]));
  },

  // Searches entries, a few files at a time, in a part of PLACES; yields {files, of, matches}.
  // Ids, which need no file, come first.
  async *search(entries, pattern, within) {
    const [, partOf] = PLACES[within];
    const byFile = new Map();
    for (const i of [...entries].sort((a, b) => a - b)) {
      byFile.set(this.fileOf(i), [...(byFile.get(this.fileOf(i)) || []), i]);
    }
    const files = [...byFile.keys()];
    const named = entries.filter((i) => within === "all" && holds(this.index.entries[i][0], pattern));
    yield { files: 0, of: files.length, matches: named };
    for (let start = 0; start < files.length; start += AT_ONCE) {
      const some = files.slice(start, start + AT_ONCE);
      const read = await Promise.all(some.map((name) => this.text(name)));
      const matches = some.flatMap((name, k) => byFile.get(name).filter((i) => holds(partOf(this.rowIn(read[k], i)), pattern)));
      yield { files: start + some.length, of: files.length, matches };
    }
  },
};

// Where to search: its name, that part of a row, and where the page shows it.
const PLACES = {
  all: ["everywhere", (row) => row, ".card"],
  questions: ["in questions", (row) => row.turns, ".ask .clamp"],
  answers: ["in answers", (row) => row.answers.flat().map((one) => one?.segments), ".answer .clamp"],
  reasons: ["in reasons", (row) => [row.malformed, row.answers.flat().map((one) => [one?.reason, one?.scores?.map((score) => score?.reason)])], ".reason"],
};

function patternOf(text) {
  return new RegExp(text.trim().replace(/[.*+?^${}()|[\]\\]/g, "\\$&").replace(/\s+/g, "\\s+"), "gi");
}

// Whether any text of `value` matches.
function holds(value, pattern) {
  if (typeof value === "string") return value.search(pattern) >= 0;
  return value !== null && typeof value === "object" && Object.values(value).some((v) => holds(v, pattern));
}
