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

// A cell holds each scorer's value. In place of one, or of all where there is no answer, is
// a position among the outcomes, as text. An outcome is meant by its position or its name.
function hasOutcome(index, cell, wanted) {
  if (wanted === "done") return Array.isArray(cell);
  const lost = [cell].flat().filter((one) => typeof one === "string");
  return lost.some((one) => one === wanted || index.outcomes[one][0] === wanted);
}

function scoresOf(entry, systems, scorer) {
  const cells = systems.map((i) => entry[3][i]);
  return cells.filter((cell) => Array.isArray(cell) && typeof cell[scorer] === "number")
    .map((cell) => cell[scorer]);
}

// All that the index can decide; text is searched in the files of the answers.
function select(index, state) {
  const systems = consideredSystems(index, state);
  const scorer = Number(state.scorer);
  const matching = index.entries.map((_, i) => i).filter((i) => {
    const entry = index.entries[i];
    if (state.category !== "" && entry[1] !== Number(state.category)) return false;
    if (state.field !== "" && entry[2] !== Number(state.field)) return false;
    if (state.outcome && !systems.some((s) => hasOutcome(index, entry[3][s], state.outcome))) return false;
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
  const mean = scores.reduce((a, b) => a + b, 0) / scores.length;
  return order === "worst" ? mean : -mean;
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
