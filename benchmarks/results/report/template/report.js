"use strict";
// Ties data, filters and answers together: what is shown follows from `state` alone, and
// the address's fragment holds whatever of it is not the default.

let state = { ...DEFAULTS };
let matches = []; // the entries that the filters leave, in their order
let turn = 0;

function start() {
  DEFAULTS.scorer = String(Math.max(0, store.index.scorers.findIndex((_, k) => tellsApart(store.index, k))));
  buildControls();
  listen();
  follow();
}

async function update() {
  const mine = ++turn;
  $("cards").setAttribute("aria-busy", "true");
  try {
    const candidates = select(store.index, state);
    if (state.text.trim()) await showMatches(candidates, mine);
    else await show(candidates, mine);
  } catch (error) {
    $("cards").replaceChildren(el("p", { class: "broken" },
      `${error.message}. The folder "report" must be next to this file.`));
  }
  if (mine === turn) $("cards").removeAttribute("aria-busy");
}

// Shows the first match while the search goes on; a newer search ends this one.
async function showMatches(candidates, mine) {
  const matched = new Set();
  $("count").value = "searching";
  for await (const part of store.search(candidates, patternOf(state.text), state.within)) {
    if (mine !== turn) return;
    part.matches.forEach((i) => matched.add(i));
    const progress = part.files < part.of ? `; searched ${part.files} of ${part.of} files` : "";
    if (matched.size || !progress) await show(candidates.filter((i) => matched.has(i)), mine, progress);
  }
}

async function show(entries, mine, progress = "") {
  const at = Math.min(Math.max(1, Number(state.at) || 1), entries.length);
  const row = at && (await store.rowOf(entries[at - 1]));
  if (mine !== turn) return;
  matches = entries;
  $("at").value = at;
  $("at").max = entries.length;
  $("count").value = countOf(entries) + progress;
  $("back").disabled = at <= 1;
  $("next").disabled = at >= entries.length;
  $("full").setAttribute("aria-pressed", String(Boolean(state.full)));
  $("chosen").hidden = !hashOf({ ...state, at: "1", full: "" });
  $("chosen").firstChild.textContent = choice();
  draw(entries[at - 1], row);
  if (at < entries.length) store.rowOf(entries[at]).catch(() => {}); // at hand for the next step
}

// How many queries are left; of an outcome, also how often they have it, as tables count.
function countOf(entries) {
  const all = store.index.entries.length;
  const text = (number) => number.toLocaleString("en");
  const from = entries.length < all ? `, from ${text(all)}` : "";
  return `of ${text(entries.length)}${from}` + (state.outcome ? `; ${text(timesIn(entries))} ${outcomeName()}` : "");
}

function timesIn(entries) {
  const systems = consideredSystems(store.index, state);
  const times = (i) => countOutcome(store.index, store.index.entries[i], systems, state.outcome);
  return entries.reduce((sum, i) => sum + times(i), 0);
}

function outcomeName() {
  return outcomeText(store.index.outcomes[state.outcome]?.[0] ?? state.outcome);
}

// What is shown, in words.
function choice() {
  const picked = (id) => $(id).selectedOptions[0]?.text;
  const alone = state.system !== "" ? ` of ${picked("system")}` : state.order === "apart" ? "" : " of all systems shown";
  const order = `Order: ${picked("order")}` + (state.order === "task" ? "" : `, by ${picked("scorer")}${alone}`);
  const filters = ["category", "field", "outcome"].filter((id) => state[id]).map((id) => `${id}: ${picked(id)}`);
  return [order, ...filters].join("; ");
}

function draw(i, row) {
  const empty = el("p", { class: "remarks" }, "No query matches these filters.");
  const node = i === undefined ? empty : card(store.index, store.index.entries[i], row, state);
  if (state.full) node.classList.add("full");
  $("cards").replaceChildren(node);
  if (state.text.trim()) mark($("cards").querySelectorAll(PLACES[state.within][2]), patternOf(state.text));
  for (const box of node.querySelectorAll(".clamp")) {
    if (state.full) box.classList.remove("clamp");
    else box.classList.toggle("cut", box.scrollHeight > box.clientHeight + 8);
  }
}

// Marks what was searched for, and unfolds what holds it.
function mark(places, pattern) {
  const found = new Highlight();
  CSS.highlights.set("found", found);
  for (const place of places) {
    const walker = document.createTreeWalker(place, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const node = walker.currentNode;
      for (const hit of node.data.matchAll(pattern)) {
        found.add(new StaticRange({ startContainer: node, startOffset: hit.index, endContainer: node, endOffset: hit.index + hit[0].length }));
        node.parentElement.closest("details")?.setAttribute("open", "");
        node.parentElement.closest(".clamp")?.classList.remove("clamp");
      }
    }
  }
}

function change(values) {
  sayUnknown("");
  state = { ...state, at: "1", ...values };
  history.replaceState(null, "", location.pathname + location.search + hashOf(state));
  return update();
}

// A fragment names a part of the page, a query or a state.
async function follow() {
  let target = location.hash.slice(1);
  try { target = decodeURIComponent(target); } catch { /* a bare percent sign in an id */ }
  const part = target.startsWith("section-") && $(target);
  for (let box = part; box; box = box.parentElement.closest("details")) if (box.localName === "details") box.open = true;
  if (part) part.scrollIntoView();
  if (part && matches.length) return;
  const i = placeOf(target);
  const known = i >= 0 || part || isState(location.hash.slice(1));
  sayUnknown(known ? "" : target);
  state = i < 0 ? stateFrom(location.hash.slice(1)) : { ...DEFAULTS, hide: state.hide, full: state.full };
  if (i >= 0) state.at = String(1 + select(store.index, state).indexOf(i));
  showState();
  await update();
  if (target && !part) $("section-answers").scrollIntoView();
}

// Which entry has a name. `KEY~2` once named the second repeat of a query alone.
function placeOf(name) {
  const named = (key) => store.index.entries.findIndex((entry) => entry[0] === key);
  const i = named(name);
  return i < 0 ? named(name.replace(/~\d+$/, "")) : i;
}

// A link to a query that is not on this page must not pass for a link to the first one.
function sayUnknown(target) {
  $("unknown").hidden = !target;
  $("unknown").textContent = target ? `This report has no query with the id "${target}".` : "";
}

function options(id, names) {
  $(id).replaceChildren(...names.map(([value, text]) => el("option", { value }, text)));
}

function buildControls() {
  const numbered = (names) => names.map((name, i) => [String(i), name || "none"]);
  options("category", [["", "all"], ...numbered(store.index.categories)]);
  options("field", [["", "all"], ...numbered(store.index.fields)]);
  options("system", [["", "any shown"], ...numbered(store.index.systems.map((s) => s.name))]);
  const { outcomes } = store.index;
  const kinds = [...new Set(["done", ...outcomes.map(([name]) => name)])];
  const of = (scorer) => scorer === null ? "" : store.index.scorers[scorer].name + " ";
  options("outcome", [["", "any"], ...kinds.map((name) => [name, outcomeText(name)]),
    ...outcomes.map(([name, scorer, reason], i) => [String(i), `${of(scorer)}${outcomeText(name)}: ${reason}`])]);
  options("within", Object.entries(PLACES).map(([name, [text]]) => [name, text]));
  options("scorer", numbered(store.index.scorers.map((s) => s.name)));
  options("order", Object.entries(ORDERS));
  const idle = store.index.scorers.length ? [] : ["scorer", "order"];
  for (const [id, names] of [["category", store.index.categories], ["field", store.index.fields]]) {
    if (!names.some(Boolean)) idle.push(id);
  }
  for (const id of idle) $(id).closest("label").hidden = true;
  $("columns").replaceChildren(...store.index.order.map((i) =>
    el("label", {}, el("input", { type: "checkbox", value: String(i) }), breakable(store.index.systems[i].name))));
}

const CONTROLS = ["text", "category", "field", "system", "outcome", "scorer", "order", "within"];
const KEYS = { j: "next", k: "back", ArrowRight: "next", ArrowLeft: "back", f: "full" };

function showState() {
  CONTROLS.forEach((id) => { $(id).value = state[id]; });
  const shown = new Set(shownSystems(store.index, state));
  for (const box of $("columns").querySelectorAll("input")) box.checked = shown.has(Number(box.value));
}

function listen() {
  for (const id of CONTROLS) {
    $(id).addEventListener($(id).localName === "select" ? "change" : "input", debounced(() => change({ [id]: $(id).value }), id === "text" ? 200 : 0));
  }
  $("columns").addEventListener("change", () => {
    const boxes = [...$("columns").querySelectorAll("input")];
    change({ hide: boxes.filter((b) => !b.checked).map((b) => b.value).join(","), at: state.at });
  });
  $("filters").addEventListener("submit", (event) => event.preventDefault());
  $("reset").addEventListener("click", () => { state = { ...DEFAULTS, full: state.full }; showState(); change({}); });
  $("more").addEventListener("click", () => {
    $("more").setAttribute("aria-expanded", String($("filters").classList.toggle("open")));
  });
  $("back").addEventListener("click", () => change({ at: String(Number($("at").value) - 1) }));
  $("next").addEventListener("click", () => change({ at: String(Number($("at").value) + 1) }));
  $("at").addEventListener("change", () => change({ at: $("at").value }));
  $("full").addEventListener("click", () => change({ at: state.at, full: state.full ? "" : "1" }));
  document.addEventListener("click", (event) => viewer.open(event));
  viewer.listen();
  document.addEventListener("keydown", pressed);
  window.addEventListener("hashchange", follow);
}

function debounced(action, wait) {
  let timer = 0;
  return () => { clearTimeout(timer); timer = setTimeout(action, wait); };
}

function pressed(event) {
  const elsewhere = event.target.closest("input, select, textarea, dialog, .scroll");
  if (event.ctrlKey || event.metaKey || event.altKey || (elsewhere && event.target !== document.body)) return;
  if (event.key === "/") { event.preventDefault(); $("filters").classList.add("open"); $("text").focus(); }
  if (KEYS[event.key]) $(KEYS[event.key]).click();
}

read("index.js", "report/").then((index) => { store.index = index; start(); }, () => {
  $("loading").textContent = 'The folder "report" must be next to this file.';
});
