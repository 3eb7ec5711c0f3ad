"use strict";
// Ties data, filters and cards together: what is shown follows from `state` alone, and
// the address's fragment holds whatever of it is not the default.

let state = { ...DEFAULTS };
let turn = 0;
const REDRAW_MS = 250; // how often matches are shown while a search goes on

function start() {
  buildControls();
  listen();
  follow();
  showExamples();
}

// The first screen: a few answers of two systems.
async function showExamples() {
  const { choice, shown } = store.index.examples;
  const rows = await store.rowsOf(shown.map(([i]) => i));
  const cards = shown.map(([i, systems], k) => card(store.index, store.index.entries[i], rows[k], systems));
  cards.forEach((node) => { node.className = "example"; });
  $("choice").textContent = choice;
  $("examples").append(...cards);
  $("examples").hidden = !cards.length;
  cards.forEach(unfoldShort);
}

async function update() {
  const mine = ++turn;
  const text = state.text.trim().toLowerCase();
  $("cards").setAttribute("aria-busy", "true");
  try {
    const candidates = select(store.index, state);
    if (text) await showMatches(candidates, text, mine);
    else await showPage(candidates, mine, countOf(candidates.length));
  } catch (error) {
    $("cards").replaceChildren(el("p", { class: "broken" },
      `${error.message}. The folder "report" must be beside this file.`));
  }
  if (mine === turn) $("cards").removeAttribute("aria-busy");
}

// Shows matches while the search goes on; a newer search ends this one.
async function showMatches(candidates, text, mine) {
  const matched = new Set();
  const matching = () => candidates.filter((i) => matched.has(i));
  $("count").value = "searching";
  let drawn = -Infinity;
  for await (const part of store.search(candidates, text)) {
    if (mine !== turn) return;
    part.matches.forEach((i) => matched.add(i));
    if (part.files < part.of && performance.now() - drawn > REDRAW_MS) {
      drawn = performance.now();
      const progress = `${countOf(matched.size)}; searched ${part.files} of ${part.of} files`;
      await showPage(matching(), mine, progress);
    }
  }
  if (mine === turn) await showPage(matching(), mine, countOf(matched.size));
}

async function showPage(entries, mine, count) {
  const size = Number(state.size);
  const last = Math.max(1, Math.ceil(entries.length / size));
  const page = Math.min(Math.max(1, Number(state.page) || 1), last);
  const slice = entries.slice((page - 1) * size, page * size);
  const rows = await store.rowsOf(slice);
  if (mine === turn) draw(slice, rows, page, last, count);
}

function countOf(number) {
  const all = store.index.entries.length;
  return number === all ? `${all.toLocaleString("en")} queries`
    : `${number.toLocaleString("en")} of ${all.toLocaleString("en")} queries`;
}

function draw(slice, rows, page, last, count) {
  const systems = shownSystems(store.index, state);
  const shown = JSON.stringify([slice, systems]);
  $("count").value = count;
  $("reset").hidden = !hashOf({ ...state, page: "1", size: DEFAULTS.size });
  $("pages").replaceChildren(...pager(page, last));
  if (shown === $("cards").dataset.shown) return;
  $("cards").dataset.shown = shown;
  const cards = slice.map((i, k) => card(store.index, store.index.entries[i], rows[k], systems));
  const empty = el("p", { class: "remarks" }, "No query matches these filters.");
  $("cards").replaceChildren(...(cards.length ? cards : [empty]));
  cards.forEach(unfoldShort);
}

function pager(page, last) {
  if (last === 1) return [];
  const to = (label, target, name) => {
    const button = el("button", { type: "button", "aria-label": name, disabled: target < 1 || target > last }, label);
    button.addEventListener("click", () => turnTo(target));
    return button;
  };
  return [to("\u00ab", page === 1 ? 0 : 1, "First page"), to("\u2039 Previous", page - 1, "Previous page"),
    pageInput(page, last),
    to("Next \u203a", page + 1, "Next page"), to("\u00bb", page === last ? last + 1 : last, "Last page")];
}

function pageInput(page, last) {
  const input = el("input", { type: "number", min: 1, max: last, value: page, "aria-label": "Page number" });
  input.addEventListener("change", () => turnTo(Math.min(last, Math.max(1, Number(input.value) || 1))));
  return el("label", {}, "Page ", input, ` of ${last.toLocaleString("en")}`);
}

async function turnTo(page) {
  await change({ page: String(page) });
  $("section-answers").scrollIntoView();
}

function change(values) {
  sayUnknown("");
  state = { ...state, page: "1", ...values };
  history.replaceState(null, "", location.pathname + location.search + hashOf(state));
  return update();
}

async function follow() {
  let target = location.hash.slice(1);
  try { target = decodeURIComponent(target); } catch { /* a bare percent sign in an id */ }
  if (target.startsWith("section-") && $("cards").dataset.shown) return;
  const at = store.index.entries.findIndex((entry) => entry[0] === target);
  const known = at >= 0 || isState(location.hash.slice(1)) || target.startsWith("section-");
  sayUnknown(known ? "" : target);
  if (at < 0) {
    state = stateFrom(location.hash.slice(1));
  } else {
    state = { ...DEFAULTS, size: state.size, hide: state.hide };
    state.page = String(Math.floor(at / Number(state.size)) + 1);
  }
  showState();
  await update();
  if (at >= 0) mark(cardNodes().find((node) => node.dataset.anchor === target));
  if (!known) $("unknown").scrollIntoView({ block: "center" });
}

// A link to a query that is not on this page must not pass for a link to the first one.
function sayUnknown(target) {
  $("unknown").hidden = !target;
  $("unknown").textContent = target ? `This report has no query with the id "${target}".` : "";
}

const cardNodes = () => [...document.querySelectorAll(".card")];

function mark(node) {
  if (!node) return;
  cardNodes().forEach((other) => other.classList.toggle("here", other === node));
  node.focus({ preventScroll: true });
  node.scrollIntoView({ block: "start" });
}

function options(id, names) {
  $(id).replaceChildren(...names.map(([value, text]) => el("option", { value }, text)));
}

function buildControls() {
  const numbered = (names) => names.map((name, i) => [String(i), name]);
  options("category", [["", "all"], ...numbered(store.index.categories)]);
  options("field", [["", "all"], ...numbered(store.index.fields)]);
  options("system", [["", "any shown"], ...numbered(store.index.systems.map((s) => s.name))]);
  options("outcome", [["", "any"], ...store.index.outcomes.map((name) => [name, outcomeText(name)])]);
  options("scorer", numbered(store.index.scorers.map((s) => `${s.name} (${s.scale})`)));
  options("order", Object.entries(ORDERS));
  options("size", ["10", "25", "50"].map((n) => [n, n]));
  if (!store.index.scorers.length) {
    for (const id of ["scorer", "low", "order"]) $(id).closest("label").hidden = true;
  }
  $("columns").replaceChildren(...store.index.systems.map((system, i) =>
    el("label", { dir: "auto" }, el("input", { type: "checkbox", value: String(i) }), system.name)));
  $("columns").hidden = store.index.systems.length < 2;
}

const CONTROLS = ["text", "category", "field", "system", "outcome", "scorer", "low", "high", "order", "size"];

function showState() {
  CONTROLS.forEach((id) => { $(id).value = state[id]; });
  const shown = new Set(shownSystems(store.index, state));
  for (const box of $("columns").querySelectorAll("input")) box.checked = shown.has(Number(box.value));
}

function listen() {
  for (const id of CONTROLS) {
    $(id).addEventListener(id === "text" || id === "low" || id === "high" ? "input" : "change",
      debounced(() => change({ [id]: $(id).value }), id === "text" ? 200 : 0));
  }
  $("columns").addEventListener("change", () => {
    const boxes = [...$("columns").querySelectorAll("input")];
    change({ hide: boxes.filter((b) => !b.checked).map((b) => b.value).join(","), page: state.page });
  });
  $("filters").addEventListener("submit", (event) => event.preventDefault());
  $("reset").addEventListener("click", () => { state = { ...DEFAULTS }; showState(); change({}); });
  $("more").addEventListener("click", () => {
    const open = $("filters").classList.toggle("open");
    $("more").setAttribute("aria-expanded", String(open));
  });
  document.addEventListener("click", (event) => viewer.open(event));
  viewer.listen();
  document.addEventListener("keydown", pressed);
  window.addEventListener("hashchange", async () => {
    await follow();
    if (location.hash && isState(location.hash.slice(1))) $("section-answers").scrollIntoView();
  });
}

function debounced(action, wait) {
  let timer = 0;
  return () => { clearTimeout(timer); timer = setTimeout(action, wait); };
}

function pressed(event) {
  const typing = event.target.closest("input, select, textarea, dialog");
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/") { event.preventDefault(); $("text").focus(); }
  if (event.key === "j" || event.key === "k") step(event.key === "j" ? 1 : -1);
  if (event.key === "n") document.querySelector('[aria-label="Next page"]:enabled')?.click();
  if (event.key === "p") document.querySelector('[aria-label="Previous page"]:enabled')?.click();
}

function step(by) {
  const nodes = cardNodes();
  const at = nodes.findIndex((node) => node.classList.contains("here"));
  mark(nodes[at < 0 ? 0 : Math.min(nodes.length - 1, Math.max(0, at + by))]);
}

read("index.js").then((index) => { store.index = index; start(); }, () => {
  $("loading").textContent = 'The folder "report" must be beside this file.';
});
