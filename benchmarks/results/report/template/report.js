"use strict";
// Ties data, filters and cards together: what is shown follows from `state` alone, and
// the address's fragment holds whatever of it is not the default.

let state = { ...DEFAULTS };
let turn = 0;

function start() {
  buildControls();
  listen();
  follow();
}

async function update() {
  const mine = ++turn;
  try {
    if (state.text.trim()) await store.loadAll(sayProgress);
    if (mine !== turn) return;
    const kept = select(store.index, state, (i) => store.haystack(i));
    const size = Number(state.size);
    const last = Math.max(1, Math.ceil(kept.length / size));
    const page = Math.min(Math.max(1, Number(state.page) || 1), last);
    const slice = kept.slice((page - 1) * size, page * size);
    await store.loadFor(slice);
    if (mine === turn) draw(slice, kept.length, page, last);
  } catch (error) {
    $("cards").replaceChildren(el("p", { class: "broken" },
      `${error.message}. The folder "report" must lie beside this file.`));
  }
}

function sayProgress(done, all) {
  $("found").value = `reading ${done} of ${all} files`;
}

function draw(slice, total, page, last) {
  const systems = shownSystems(store.index, state);
  const cards = slice.map((i) => card(store.index, store.index.entries[i], store.row(i), systems));
  const empty = el("p", { class: "remarks" }, "No query matches these filters.");
  $("cards").replaceChildren(...(cards.length ? cards : [empty]));
  $("cards").removeAttribute("aria-busy");
  cards.forEach(unfoldShort);
  const all = store.index.entries.length;
  $("found").value = total === all ? `${all.toLocaleString("en")} queries`
    : `${total.toLocaleString("en")} of ${all.toLocaleString("en")} queries`;
  $("reset").hidden = !hashOf({ ...state, page: "1", size: DEFAULTS.size });
  $("pages").replaceChildren(...pager(page, last));
}

function pager(page, last) {
  if (last === 1) return [];
  const to = (label, target, name) => {
    const button = el("button", { type: "button", "aria-label": name, disabled: target < 1 || target > last }, label);
    button.addEventListener("click", () => turnTo(target));
    return button;
  };
  return [to("\u00ab", page === 1 ? 0 : 1, "First page"), to("\u2039 Previous", page - 1, "Previous page"),
    el("span", {}, `Page ${page} of ${last}`),
    to("Next \u203a", page + 1, "Next page"), to("\u00bb", page === last ? last + 1 : last, "Last page")];
}

async function turnTo(page) {
  await change({ page: String(page) });
  $("section-answers").scrollIntoView();
}

function change(values) {
  state = { ...state, page: "1", ...values };
  history.replaceState(null, "", location.pathname + location.search + hashOf(state));
  return update();
}

async function follow() {
  let target = location.hash.slice(1);
  try { target = decodeURIComponent(target); } catch { /* a bare percent sign in an id */ }
  const at = store.index.entries.findIndex((entry) => entry[0] === target);
  if (at < 0) {
    if (target.startsWith("section-")) return;
    state = stateFrom(location.hash.slice(1));
    showState();
    await update();
    return;
  }
  state = { ...DEFAULTS, size: state.size, hide: state.hide };
  state.page = String(Math.floor(at / Number(state.size)) + 1);
  showState();
  await update();
  mark(cardNodes().find((node) => node.dataset.anchor === target));
}

const cardNodes = () => [...document.querySelectorAll(".card")];

function mark(node) {
  if (!node) return;
  cardNodes().forEach((other) => other.classList.toggle("here", other === node));
  node.focus({ preventScroll: true });
  node.scrollIntoView({ block: "start" });
}

function options(id, names) {
  $(id).replaceChildren(...names.map(([value, said]) => el("option", { value }, said)));
}

function buildControls() {
  const numbered = (names) => names.map((name, i) => [String(i), name]);
  options("category", [["", "all"], ...numbered(store.index.categories)]);
  options("field", [["", "all"], ...numbered(store.index.fields)]);
  options("system", [["", "any shown"], ...numbered(store.index.systems.map((s) => s.name))]);
  options("outcome", [["", "any"], ...Object.entries(OUTCOME_NAMES)]);
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
  $("cards").addEventListener("click", enlarge);
  $("viewer").addEventListener("click", (event) => { if (event.target === $("viewer")) $("viewer").close(); });
  document.addEventListener("keydown", pressed);
  window.addEventListener("hashchange", follow);
}

function debounced(action, wait) {
  let timer = 0;
  return () => { clearTimeout(timer); timer = setTimeout(action, wait); };
}

function enlarge(event) {
  const link = event.target.closest("a.picture");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  $("viewer").querySelector("figure").replaceChildren(
    el("img", { src: link.getAttribute("href"), alt: link.dataset.caption }),
    el("figcaption", { dir: "auto" }, link.dataset.caption));
  $("viewer").showModal();
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
