"use strict";
// One query: what was asked, and what each system answered, side by side.

// An outcome by its name in the tables, as text.
function outcomeText(name) {
  return name === "missing" ? "not made" : name.replaceAll("_", " ");
}

// `scorer` is the one whose scores stand beside the systems' names.
function card(index, entry, full, systems, scorer) {
  const [anchor, category, field, cells] = entry;
  const repeat = index.repeats > 1 ? `, repeat ${full.repeat + 1}` : "";
  const header = el("header", {},
    el("h2", {}, el("a", { href: linkTo(anchor), dir: "auto" }, anchor)),
    el("span", { class: "scale" }, `${index.categories[category]}, ${index.fields[field]}${repeat}`));
  const answers = systems.map((i) => answer(index, i, cells[i], full.answers[i], scorer));
  const node = el("article", { class: "card" }, header, asked(full),
    el("div", { class: "answers", tabindex: "0", role: "region", "aria-label": "Answers side by side" }, answers));
  node.dataset.anchor = anchor;
  return node;
}

function linkTo(anchor) {
  try {
    return "#" + encodeURIComponent(anchor);
  } catch {
    return "#section-answers"; // an id with a lone surrogate has no address
  }
}

function asked(full) {
  if (full.malformed !== undefined) {
    return el("div", { class: "ask" }, el("p", { class: "reason", dir: "auto" }, "Malformed row: ", full.malformed));
  }
  const several = full.turns.length > 1;
  const turns = full.turns.map(([role, segments]) => [
    several ? el("p", { class: "role" }, role === "assistant" ? "published answer" : role) : null,
    content(segments, QUESTION),
  ]);
  const truth = full.truth ? folded("Ground truth", content(full.truth, "Image of the ground truth")) : null;
  const criteria = full.criteria
    ? folded("Criteria", el("p", { class: "reason", dir: "auto" }, full.criteria)) : null;
  return el("div", { class: "ask" }, el("div", { class: "clamp" }, turns.flat()), el("div", {}, truth, criteria));
}

function answer(index, i, cell, full, scorer) {
  const system = index.systems[i];
  const weights = ["mini", "dummy", "tiny"].includes(system.weights)
    ? el("span", { class: "scale" }, system.weights + " weights") : null;
  const name = el("h3", { dir: "auto" }, breakable(system.name));
  const attributes = { class: "answer", "aria-label": system.name };
  if (!Array.isArray(cell)) {
    const chip = el("p", { class: "chip " + cell }, outcomeText(cell));
    const why = full ? reason(full) : el("p", { class: "reason" }, "This answer is not made yet.");
    return el("section", attributes, el("header", {}, name, chip), why,
      el("div", {}, full?.notes ? folded("Details", datum(full.notes)) : null, weights));
  }
  const chips = index.scorers.map((one, k) => chip(one, cell[k], k === scorer));
  const caption = "Image by " + system.name;
  const body = full.ends ? dialogue(full, caption) : written(full.segments, caption);
  const details = [...judged(index, full.scores), full.notes ? ["notes", datum(full.notes)] : []].flat();
  return el("section", attributes, el("header", {}, name, chips[scorer]), el("div", { class: "clamp" }, body),
    el("div", {}, chips.filter((_, k) => k !== scorer), unjudged(index, cell, full.scores), order(full),
      details.length ? folded("Details", details) : null, weights));
}

// Said where a server gave its images apart from the text.
function order(full) {
  const noted = Object.values(full.notes || {}).filter(Array.isArray).flat().find((record) => record?.order);
  return noted ? el("p", { class: "reason", dir: "auto" }, "Order of text and images: " + noted.order) : null;
}

function written(segments, caption) {
  return segments.length ? content(segments, caption)
    : el("p", { class: "reason" }, "The answer is empty.");
}

// The answers to the turns of a conversation, one below the other.
function dialogue(full, caption) {
  const parts = full.ends.map((end, i) => [
    el("p", { class: "role" }, "answer to turn " + (i + 1)),
    written(full.segments.slice(i ? full.ends[i - 1] : 0, end), caption),
  ]);
  return el("div", { class: "content" }, parts.flat());
}

function reason(full) {
  const fault = full.fault ? el("b", {}, full.fault + ": ") : null;
  return el("p", { class: "reason", dir: "auto" }, fault, full.reason);
}

function chip(scorer, score, alone) {
  const value = typeof score === "number";
  const about = { class: "chip " + (value ? "value" : score), title: `${scorer.name} (${scorer.scale})` };
  return el("p", about, el("span", { class: alone && "heard" }, breakable(scorer.name), " "),
    el("b", {}, value ? score.toFixed(scorer.decimals) : outcomeText(score)));
}

// Why a scorer gave no score; "not applicable" needs no further reason.
function unjudged(index, cell, scores) {
  return scores.map((score, k) => score && score.reason !== undefined && cell[k] !== "not_applicable"
    ? el("p", { class: "reason", dir: "auto" }, index.scorers[k].name + ": ",
        score.fault ? score.fault + ": " : null, score.reason)
    : null);
}

function judged(index, scores) {
  return scores.map((score, k) => {
    const parts = [score?.parts, score?.notes].filter(Boolean).map(datum);
    return parts.length ? [el("h4", {}, index.scorers[k].name), ...parts] : [];
  });
}
