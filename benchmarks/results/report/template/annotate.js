"use strict";
// A rater's answers are an order of items, drawn once, and a log of keys, whose last entry
// undo takes back: [position, question or -1 for "cannot say", key, time]. They are kept in
// the browser, or by the server that shows the page.

const served = document.documentElement.hasAttribute("data-served");
const packs = new Map();
const AGAIN_MS = 2000;
let data = null;
let state = null;
let at = 0; // position in the order
let now = 0; // question of the item

function say(text) {
  $("said").hidden = !text;
  $("said").textContent = text || "";
}

// ------------------------------------------------------------------ keeping answers

const place = served ? {
  url: (rater) => "answers/" + encodeURIComponent(rater),
  async get(rater) {
    const reply = await fetch(this.url(rater), { cache: "no-store" });
    if (!reply.ok) throw new Error(`The server says ${reply.status}.`);
    return reply.json(); // null for a new rater
  },
  async put(sent) {
    const reply = await fetch(this.url(sent.rater), { method: "PUT", body: JSON.stringify(sent) });
    if (!reply.ok && reply.status !== 409) throw new Error(`The server says ${reply.status}.`);
    return reply.ok;
  },
} : {
  name: (rater) => `plait-annotate ${data.study} ${rater}`,
  async get(rater) { return JSON.parse(localStorage.getItem(this.name(rater))); },
  async put(sent) {
    if (((await this.get(sent.rater))?.revision || 0) !== sent.revision - 1) return false;
    localStorage.setItem(this.name(sent.rater), JSON.stringify(sent));
    return true;
  },
};

let unsaved = false;
let saving = false;
let locked = false;

async function save() {
  unsaved = true;
  if (saving) return;
  saving = true;
  while (unsaved && !locked) {
    unsaved = false;
    const sent = { ...state, log: [...state.log], revision: state.revision + 1 };
    try {
      locked = !(await place.put(sent));
      if (!locked) state.revision = sent.revision;
      say(locked ? "Your answers were continued in another window. Reload this page to see them." : "");
    } catch (error) {
      unsaved = true;
      say(served ? `Not saved, trying again: ${error.message}`
        : "This browser does not save answers for this page: download them before you close it.");
      if (!served) break;
      await new Promise((done) => setTimeout(done, AGAIN_MS));
    }
  }
  saving = false;
}

window.addEventListener("beforeunload", (event) => { if (unsaved || saving) event.preventDefault(); });

// ------------------------------------------------------------------ order and answers

function random(below) {
  return Math.floor(crypto.getRandomValues(new Uint32Array(1))[0] / 2 ** 32 * below);
}

function shuffled(list) {
  const all = [...list];
  for (let i = all.length - 1; i > 0; i -= 1) {
    const k = random(i + 1);
    [all[i], all[k]] = [all[k], all[i]];
  }
  return all;
}

const itemAt = (i) => data.items[state.order[i][0]];
const questionsAt = (i) => data.forms[itemAt(i).form].questions;

// By question, the key given to the item at a position; null for "cannot say".
function givenAt(i) {
  let given = {};
  for (const [position, question, key] of state.log) {
    if (position !== i) continue;
    if (question < 0) given = null;
    else given = { ...given, [question]: key };
  }
  return given;
}

function openAt(i) {
  const given = givenAt(i);
  return given ? questionsAt(i).findIndex((_, q) => !(q in given)) : -1;
}

const isDone = (i) => openAt(i) < 0;

function enter(question, key) {
  state.log.push([at, question, key, Date.now()]);
  save();
}

function go(position, question) {
  const moved = position !== at;
  at = Math.min(state.order.length, Math.max(0, position));
  now = at < state.order.length ? question ?? Math.max(0, openAt(at)) : 0;
  return show(moved);
}

function choose(key) {
  if (!questionsAt(at)[now].keys.some(([one]) => one === key)) return;
  enter(now, key);
  const open = openAt(at);
  go(at, open < 0 ? now : open);
}

function pressed(key) {
  if (!state || locked) return;
  const inside = at < state.order.length;
  if (key === "d") download();
  else if ((key === "u" || key === "Backspace") && state.log.length) {
    const [position, question] = state.log.pop();
    save();
    go(position, Math.max(0, question));
  } else if (key === "p") go(at - 1, 0);
  else if (!inside) return;
  else if (key === "x") { enter(-1, ""); go(at + 1); }
  else if (key === "Enter" && isDone(at)) go(at + 1);
  else if (key === "Enter") go(at, openAt(at));
  else if (key === "ArrowDown" || key === "j") go(at, Math.min(questionsAt(at).length - 1, now + 1));
  else if (key === "ArrowUp" || key === "k") go(at, Math.max(0, now - 1));
  else choose(key);
}

function download() {
  const url = URL.createObjectURL(new Blob([JSON.stringify(state)], { type: "application/json" }));
  el("a", { href: url, download: `answers-${state.rater}-${data.study}.json` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

// ------------------------------------------------------------------ showing an item

async function placed(segments) {
  return el("div", { class: "content" }, await Promise.all(segments.map(async (part) => {
    if (typeof part === "string") return el("p", { dir: "auto" }, part);
    const name = data.packs[Math.floor(part / data.pack)];
    if (!packs.has(name)) packs.set(name, read(name));
    const [src, width, height] = (await packs.get(name))[part % data.pack];
    return src === null ? el("p", { class: "broken" }, "Image: " + width)
      : el("img", { src, width, height, alt: "image", decoding: "async" });
  })));
}

async function drawItem(item, swapped) {
  const mine = at;
  const turns = await Promise.all(item.turns.map(async ([role, segments]) =>
    [el("h3", {}, role === "user" ? "Query" : role), await placed(segments)]));
  const truth = item.truth ? [el("h3", {}, "Correct answer"), await placed(item.truth)] : [];
  const sides = swapped ? [...item.answers].reverse() : item.answers;
  const names = sides.length > 1 ? [byWidth("Left", "Above"), byWidth("Right", "Below")] : [["Answer"]];
  const answers = await Promise.all(sides.map(async (segments, k) =>
    el("div", { class: "shown" }, el("h3", {}, names[k]), await placed(segments))));
  if (mine !== at) return;
  $("query").replaceChildren(...turns.flat(), ...truth);
  $("answers").replaceChildren(...answers);
  $("item").dataset.shown = at;
  window.scrollTo(0, 0);
}

// Two answers stand side by side, on a narrow screen one above the other.
function byWidth(broad, narrow) {
  return [el("span", { class: "broad" }, broad), el("span", { class: "narrow" }, narrow)];
}

function drawQuestions(form) {
  const given = givenAt(at);
  const rows = form.questions.map(({ title, about, keys, stacked }, q) => {
    const choices = keys.map(([key, label]) => {
      const words = stacked?.[key] ? byWidth(label, stacked[key]) : label;
      const name = key === label ? [el("kbd", {}, key)] : [el("kbd", {}, key), " ", words].flat();
      const button = el("button", { type: "button", "aria-pressed": String(given?.[q] === key) }, name);
      button.addEventListener("click", () => { now = q; if (!locked) choose(key); });
      return button;
    });
    return el("div", { class: q === now ? "question here" : "question", role: "group", "aria-label": title || about },
      title ? el("h4", {}, title) : null, el("p", {}, about), el("div", { class: "choices" }, choices));
  });
  const told = given === null ? "You left this blank; answer to change that." : form.task;
  $("questions").replaceChildren(...(told ? [el("p", { class: "remarks" }, told)] : []), ...rows);
  $("questions").querySelector(".here").scrollIntoView({ block: "nearest" });
}

async function show(moved) {
  const total = state.order.length;
  const done = state.order.filter((_, i) => isDone(i)).length;
  $("done").max = total;
  $("done").value = done;
  $("count").value = `${done} of ${total} done` + (at < total ? `, item ${at + 1}` : "");
  for (const [id, shown] of [["start", false], ["done", true], ["bar", true], ["item", at < total], ["end", at >= total]]) {
    $(id).hidden = !shown;
  }
  if (at >= total) return;
  const item = itemAt(at);
  $("item").className = item.answers.length > 1 ? "pair" : "";
  drawQuestions(data.forms[item.form]);
  if (moved || $("item").dataset.shown === undefined) {
    await drawItem(item, state.order[at][1]).catch((error) => say(error.message));
  }
}

// ------------------------------------------------------------------ beginning

function begin(known, rater) {
  if (known && known.study !== data.study) throw new Error("These answers belong to another page.");
  const order = () => data.blocks.flatMap(shuffled).map((token) => [token, random(2)]);
  state = known || { study: data.study, rater, revision: 0, order: order(), log: [] };
  if (!known) save();
  const open = state.order.findIndex((_, i) => !isDone(i));
  document.activeElement?.blur();
  return go(open < 0 ? state.order.length : open);
}

$("start").addEventListener("submit", async (event) => {
  event.preventDefault();
  const rater = $("rater").value.trim();
  if (!data || !rater) return;
  try {
    await begin(await place.get(rater), rater);
  } catch (error) {
    say(error.message);
    if (!served) begin(null, rater); // a browser that keeps nothing for pages on disk
  }
});

$("file").addEventListener("change", async () => {
  try {
    const given = JSON.parse(await $("file").files[0].text());
    const kept = await place.get(given.rater).catch(() => null);
    if ((kept?.log.length || 0) > given.log.length) throw new Error("This browser or server has newer answers under this name.");
    await begin({ ...given, revision: kept?.revision || 0 });
    save();
  } catch (error) { say(error.message); }
});

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input")) return;
  if (event.target.closest("button") && (event.key === "Enter" || event.key === " ")) return;
  if (["Backspace", "Enter", "ArrowUp", "ArrowDown"].includes(event.key) && state) event.preventDefault();
  pressed(event.key);
});

for (const button of $("bar").querySelectorAll("button")) {
  button.addEventListener("click", () => { button.blur(); pressed(button.dataset.key); });
}

$("farewell").textContent = served ? "Your answers are saved. You may close this window."
  : "Press d to download your answers, and send the file to whoever asked you.";

read("items.js").then((rows) => { data = rows; }, (error) => say(`${error.message}; it must be in the same folder as this page.`));
