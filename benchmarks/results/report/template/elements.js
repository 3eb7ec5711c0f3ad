"use strict";
// Building the document. Text from models only ever becomes text nodes.

const $ = (id) => document.getElementById(id);

function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === false || value === null || value === undefined) continue;
    node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

const BREAK = /(?<=[+@:/_-])(?=[^\W\d])/; // where a name may be broken: never inside a word

function breakable(name) {
  return name.split(BREAK).flatMap((part, i) => (i ? [el("wbr"), part] : [part]));
}

function segment(part, caption) {
  if (typeof part === "string") return el("p", { dir: "auto" }, part);
  const [src, width, height] = part;
  if (src === null) return el("p", { class: "broken" }, "Image: " + width);
  const image = el("img", { src, width, height, alt: caption, decoding: "async" });
  return el("figure", {}, el("button", { type: "button", class: "image", title: "Enlarge" }, image));
}

function content(segments, caption) {
  return el("div", { class: "content" }, segments.map((part) => segment(part, caption)));
}

function isObject(value) {
  return value !== null && typeof value === "object" && !Array.isArray(value);
}

// Any JSON value: mappings as lists of terms, lists of mappings as tables.
function datum(value) {
  if (Array.isArray(value)) {
    if (value.length && value.every(isObject)) return dataTable(value);
    return el("div", {}, value.map((item) => el("div", {}, datum(item))));
  }
  if (isObject(value)) {
    const terms = Object.entries(value).map(([name, item]) => [
      el("dt", {}, name.replaceAll("_", " ")),
      el("dd", { dir: "auto" }, datum(item)),
    ]);
    return el("dl", { class: "parts" }, terms.flat());
  }
  if (typeof value === "number" && !Number.isInteger(value)) return String(Number(value.toPrecision(6)));
  return value === null ? "none" : String(value);
}

function dataTable(rows) {
  const names = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  const head = el("tr", {}, names.map((name) => el("th", { scope: "col" }, name.replaceAll("_", " "))));
  const cell = (name, value) =>
    el("td", { dir: "auto", "data-label": name.replaceAll("_", " "), class: typeof value === "number" && "number" },
      value === undefined ? "" : datum(value));
  const body = rows.map((row) => el("tr", {}, names.map((name) => cell(name, row[name]))));
  return el("div", { class: "scroll parts" }, el("table", {}, el("thead", {}, head), el("tbody", {}, body)));
}

function folded(title, ...children) {
  return el("details", {}, el("summary", {}, title), ...children);
}
