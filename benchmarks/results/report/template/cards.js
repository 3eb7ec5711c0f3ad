"use strict";
// One query: what was asked, and what each system answered, side by side.

// An outcome by its name in the tables, as text.
function outcomeText(name) {
  return name === "missing" ? "not made" : name.replaceAll("_", " ");
}

// The system that is chosen comes first, and the chosen scorer's scores beside the names.
function card(index, entry, full, state) {
  const [anchor, category, field, cells] = entry;
  const most = Math.max(...cells.map((own) => own.length));
  // Users' own queries need no category and no field.
  const about = [index.categories[category], index.fields[field], most > 1 ? `${most} repeats` : ""].filter(Boolean);
  const header = el("header", {},
    el("h2", {}, el("a", { href: "#" + encodeURIComponent(anchor.toWellFormed()), dir: "auto" }, anchor)),
    el("span", { class: "scale" }, about.join(", ")));
  const systems = [...new Set([...consideredSystems(index, state), ...shownSystems(index, state)])];
  const answers = systems.map((i) => most > 1 ? repeated(index, i, cells[i], full.answers[i], state)
    : answer(index, i, cells[i][0], full.answers[i][0], state));
  const node = el("article", { class: "card" }, header, asked(full),
    el("div", { class: most > 1 ? "answers several" : "answers", style: `--repeats:${most}`,
      role: "region", "aria-label": "Answers side by side" }, answers));
  node.dataset.anchor = anchor;
  return node;
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

function systemName(index, i) {
  return el("a", { href: "#section-system-" + i }, breakable(index.systems[i].name));
}

function weightsOf(system) {
  return ["mini", "dummy", "tiny"].includes(system.weights)
    ? el("span", { class: "scale" }, system.weights + " weights") : null;
}

// All repeats of one system, side by side below its name; the entry counts with their mean.
function repeated(index, i, cells, full, state) {
  const system = index.systems[i];
  const scorer = Number(state.scorer);
  const scores = scoresOfSystem(cells, scorer);
  const mean = scores.length ? el("p", { class: "chip value", title: `mean by ${index.scorers[scorer].name}` },
    el("span", {}, scores.length > 1 ? `mean of ${scores.length} ` : ""),
    el("b", {}, meanOf(scores).toFixed(index.scorers[scorer].decimals))) : null;
  return el("section", { class: "repeats", "aria-label": system.name, "aria-current": state.system === String(i) },
    el("header", {}, el("h3", { dir: "auto" }, systemName(index, i)), mean, weightsOf(system)),
    el("div", {}, cells.map((cell, k) => answer(index, i, cell, full[k], state, k + 1))));
}

// One answer; `repeat` is its number where it is not the only one of its system.
function answer(index, i, cell, full, state, repeat = 0) {
  const system = index.systems[i];
  const scorer = Number(state.scorer);
  const label = repeat ? `${system.name}, repeat ${repeat}` : system.name;
  const name = repeat ? el("h4", {}, "repeat " + repeat) : el("h3", { dir: "auto" }, systemName(index, i));
  const weights = repeat ? null : weightsOf(system);
  const attributes = { class: "answer", "aria-label": label, "aria-current": !repeat && state.system === String(i) };
  const prompts = full?.notes ? folded("Prompts and seeds", datum(full.notes)) : null;
  if (!Array.isArray(cell)) {
    const [outcome] = index.outcomes[cell];
    const chip = el("p", { class: "chip " + outcome }, outcomeText(outcome));
    const why = full ? reason(full) : el("p", { class: "reason" }, "This answer is not made yet.");
    return el("section", attributes, el("header", {}, name, chip), why,
      el("div", {}, prompts, weights));
  }
  const told = cell.map((one) => typeof one === "number" ? one : index.outcomes[one][0]);
  const chips = index.scorers.map((one, k) => chip(one, told[k], k === scorer));
  const caption = "Image by " + label;
  const body = full.ends ? dialogue(full, caption) : written(full.segments, caption);
  const details = judged(index, full.scores).flat();
  return el("section", attributes, el("header", {}, name, chips[scorer]), el("div", { class: "clamp" }, body),
    el("div", {}, chips.filter((_, k) => k !== scorer), unjudged(index, full.scores), order(full),
      details.length ? folded("How it was scored", details) : null, prompts, weights));
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

// Why a scorer gave no score.
function unjudged(index, scores) {
  return scores.map((score, k) => score?.reason !== undefined
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
