"use strict";
// One card per query: what was asked, and what each system answered.

// An outcome by its name in the tables, as text.
function outcomeText(name) {
  return name === "missing" ? "not made" : name.replaceAll("_", " ");
}

function card(index, entry, full, systems) {
  const [anchor, category, field, cells] = entry;
  const repeat = index.repeats > 1 ? el("span", { class: "tag" }, "repeat " + (full.repeat + 1)) : null;
  const header = el("header", {},
    el("h3", {}, el("a", { href: linkTo(anchor), dir: "auto" }, anchor)),
    el("span", { class: "tag" }, index.categories[category]),
    el("span", { class: "tag" }, index.fields[field]), repeat);
  const answers = systems.map((i) => answer(index, i, cells[i], full.answers[i]));
  const node = el("article", { class: "card", tabindex: "-1" }, header, asked(full),
    el("div", { class: "answers" }, answers));
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
    return el("div", { class: "ask" }, el("div", {}, el("h4", {}, "Malformed row"),
      el("p", { class: "reason", dir: "auto" }, full.malformed)));
  }
  const several = full.turns.length > 1;
  const turns = full.turns.map(([role, segments]) => [
    several ? el("p", { class: "role" }, role === "assistant" ? "published answer" : role) : null,
    content(segments, "Image of the question", !several),
  ]);
  const question = el("div", {}, el("h4", {}, "Question"), turns.flat());
  const truth = full.truth ? folded("Ground truth", content(full.truth, "Image of the ground truth")) : null;
  const criteria = full.criteria
    ? folded("Criteria", el("p", { class: "reason", dir: "auto" }, full.criteria)) : null;
  return el("div", { class: "ask" }, question, el("div", {}, truth, criteria));
}

function answer(index, i, cell, full) {
  const system = index.systems[i];
  const weights = ["mini", "dummy", "tiny"].includes(system.weights)
    ? el("span", { class: "scale" }, system.weights + " weights") : null;
  const head = el("h4", { dir: "auto" }, system.name, weights);
  if (!Array.isArray(cell)) {
    const chips = el("ul", { class: "scores" }, el("li", { class: "chip " + cell }, outcomeText(cell)));
    const why = full ? reason(full) : el("p", { class: "reason" }, "This answer is not made yet.");
    return el("section", { class: "answer" }, head, chips, why, full ? notes(full.notes) : null);
  }
  const chips = index.scorers.map((scorer, k) => chip(scorer, cell[k]));
  const caption = "Image by " + system.name;
  const body = full.ends ? dialogue(full, caption) : written(full.segments, caption);
  return el("section", { class: "answer" }, head, el("ul", { class: "scores" }, chips),
    unjudged(index, cell, full.scores), foldable(body), order(full), judged(index, full.scores), notes(full.notes));
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

function chip(scorer, score) {
  if (typeof score === "string") {
    return el("li", { class: "chip " + score }, scorer.name, el("b", {}, outcomeText(score)));
  }
  const node = el("li", { class: "chip value", title: scorer.name + " on a scale of " + scorer.scale },
    scorer.name, el("b", {}, score.toFixed(scorer.decimals)));
  if (scorer.low !== null && scorer.high > scorer.low) {
    const share = Math.min(1, Math.max(0, (score - scorer.low) / (scorer.high - scorer.low)));
    const bar = el("i", { "aria-hidden": "true" });
    bar.style.width = share * 100 + "%";
    node.append(bar);
  }
  return node;
}

// Why a scorer gave no score; "not applicable" needs no further reason.
function unjudged(index, cell, scores) {
  return scores.map((score, k) => score && score.reason !== undefined && cell[k] !== "not_applicable"
    ? el("p", { class: "reason", dir: "auto" }, index.scorers[k].name + ": ",
        score.fault ? score.fault + ": " : null, score.reason)
    : null);
}

function judged(index, scores) {
  const details = scores.map((score, k) => {
    const parts = [score?.parts, score?.notes].filter(Boolean).map(datum);
    return parts.length ? folded(index.scorers[k].name + " in detail", parts) : null;
  });
  return details.some(Boolean) ? el("div", {}, details) : null;
}

function notes(noted) {
  return noted ? folded("Notes", datum(noted)) : null;
}

function foldable(body) {
  const box = el("div", { class: "clamp" }, body);
  const button = el("button", { type: "button", class: "unfold" }, "Show all");
  button.addEventListener("click", () => { box.classList.remove("clamp"); button.remove(); });
  return [box, button];
}

// Short answers need no folding; heights are known once the card is in the page.
function unfoldShort(node) {
  for (const box of node.querySelectorAll(".clamp")) {
    if (box.scrollHeight <= box.clientHeight + 48) {
      box.classList.remove("clamp");
      box.nextElementSibling.remove();
    }
  }
}
