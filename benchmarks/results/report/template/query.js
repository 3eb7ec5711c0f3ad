"use strict";
// Which entries are shown, and in which order. Knows the index, nothing of the document.

const DEFAULTS = {
  text: "", category: "", field: "", system: "", outcome: "", scorer: "0",
  order: "apart", at: "1", hide: "", full: "", within: "all",
};
const ORDERS = {
  apart: "biggest disagreement", worst: "worst first", best: "best first", task: "task order",
};

function shownSystems(index, state) {
  const hidden = new Set(state.hide.split(",").filter(Boolean).map(Number));
  return index.order.filter((i) => !hidden.has(i));
}

function consideredSystems(index, state) {
  return state.system === "" ? shownSystems(index, state) : [Number(state.system)];
}

// Of each system an entry has one cell for each repeat. A cell holds each scorer's value. In
// place of one, or of all where there is no answer, is a position among the outcomes, as
// text. An outcome is meant by its position or its name: how often a cell has it.
function timesOf(index, cell, wanted) {
  if (wanted === "done") return Number(Array.isArray(cell));
  const lost = [cell].flat().filter((one) => typeof one === "string");
  return lost.filter((one) => one === wanted || index.outcomes[one][0] === wanted).length;
}

function countOutcome(index, entry, systems, wanted) {
  return systems.flatMap((i) => entry[3][i]).reduce((sum, cell) => sum + timesOf(index, cell, wanted), 0);
}

function meanOf(values) {
  return values.reduce((a, b) => a + b, 0) / values.length;
}

// What a scorer gives the answers of one system, without repeats that have no score.
function scoresOfSystem(cells, scorer) {
  return cells.filter((cell) => Array.isArray(cell) && typeof cell[scorer] === "number")
    .map((cell) => cell[scorer]);
}

// The mean over repeats of each system that has a score.
function scoresOf(entry, systems, scorer) {
  return systems.map((i) => scoresOfSystem(entry[3][i], scorer)).filter((own) => own.length).map(meanOf);
}

// All that the index can decide; text is searched in the files of the answers.
function select(index, state) {
  const systems = consideredSystems(index, state);
  const scorer = Number(state.scorer);
  const matching = index.entries.map((_, i) => i).filter((i) => {
    const entry = index.entries[i];
    if (state.category !== "" && entry[1] !== Number(state.category)) return false;
    if (state.field !== "" && entry[2] !== Number(state.field)) return false;
    if (state.outcome && !countOutcome(index, entry, systems, state.outcome)) return false;
    return true;
  });
  return ordered(index, matching, state.order, systems, scorer);
}

// Entries without a score come last, whatever the order.
function ordered(index, entries, order, systems, scorer) {
  const models = systems.filter((i) => !index.systems[i].reference);
  if (order === "task") return entries;
  if (order === "apart" && models.length > 1) systems = models;
  const sign = index.scorers[scorer]?.lower ? -1 : 1;
  const scores = (i) => scoresOf(index.entries[i], systems, scorer).map((score) => sign * score);
  const weight = new Map(entries.map((i) => [i, rank(scores(i), order)]));
  return entries.sort((a, b) => weight.get(a) - weight.get(b) || a - b);
}

// The higher the scores, the better.
function rank(scores, order) {
  if (order === "apart") return scores.length < 2 ? 1 : Math.min(...scores) - Math.max(...scores);
  if (!scores.length) return Number.MAX_VALUE;
  return order === "worst" ? meanOf(scores) : -meanOf(scores);
}

// Whether a scorer gives any two systems different scores on a query.
function tellsApart(index, scorer) {
  const systems = shownSystems(index, DEFAULTS);
  return index.entries.some((entry) => rank(scoresOf(entry, systems, scorer), "apart") < 0);
}

function stateFrom(hash) {
  const values = new URLSearchParams(hash);
  return Object.fromEntries(Object.keys(DEFAULTS).map((k) => [k, values.get(k) ?? DEFAULTS[k]]));
}

// Whether a fragment holds nothing but values of the state.
function isState(hash) {
  return [...new URLSearchParams(hash).keys()].every((name) => name in DEFAULTS);
}

function hashOf(state) {
  const changed = Object.entries(state).filter(([k, v]) => String(v) !== DEFAULTS[k]);
  return changed.length ? "#" + new URLSearchParams(changed) : "";
}
