"use strict";
// The image viewer: one image of a card at a time, or those of all systems side by side.

const QUESTION = "Image of the question";

const viewer = {
  images: [],
  at: 0,
  beside: false,

  // A click on an image opens it.
  open(event) {
    const image = event.target.closest(".image")?.firstChild;
    if (!image) return;
    this.images = [...image.closest("article").querySelectorAll(".image img")];
    this.at = this.images.indexOf(image);
    this.beside = false;
    this.show();
    $("viewer").showModal();
  },

  listen() {
    $("earlier").addEventListener("click", () => this.step(-1));
    $("later").addEventListener("click", () => this.step(1));
    $("beside").addEventListener("click", () => this.toggle());
    $("viewer").addEventListener("click", (event) => {
      if (event.target === $("viewer")) $("viewer").close();
    });
    $("viewer").addEventListener("keydown", (event) => this.pressed(event));
  },

  pressed(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "ArrowLeft") this.step(-1);
    else if (event.key === "ArrowRight") this.step(1);
    else if (event.key === "s") this.toggle();
    else return;
    event.preventDefault();
  },

  // The images of each owner: the ground truth and every system shown.
  rows() {
    const owners = new Map();
    for (const image of this.images.filter((one) => one.alt !== QUESTION)) {
      if (!owners.has(image.alt)) owners.set(image.alt, []);
      owners.get(image.alt).push(image);
    }
    return [...owners.values()];
  },

  toggle() {
    const image = this.images[this.at];
    const rows = this.rows();
    if (!this.beside && rows.length < 2) return;
    if (this.beside) {
      const first = rows.map((row) => row[this.at]).find(Boolean);
      this.at = Math.max(0, this.images.indexOf(first));
    } else {
      this.at = Math.max(0, ...rows.map((row) => row.indexOf(image)));
    }
    this.beside = !this.beside;
    this.show();
  },

  get count() {
    return this.beside ? Math.max(...this.rows().map((row) => row.length)) : this.images.length;
  },

  step(by) {
    this.at = Math.min(this.count - 1, Math.max(0, this.at + by));
    this.show();
  },

  show() {
    const shown = this.beside ? this.rows().map((row) => row[this.at] || row[0].alt)
      : [this.images[this.at]];
    $("stage").className = this.beside ? "beside" : "";
    $("stage").replaceChildren(...shown.map(enlarged));
    $("position").value = `${this.at + 1} of ${this.count}`;
    $("earlier").disabled = this.at === 0;
    $("later").disabled = this.at >= this.count - 1;
    $("beside").hidden = this.rows().length < 2;
    $("beside").setAttribute("aria-pressed", String(this.beside));
  },
};

// An image with its caption; a name alone where its owner has fewer images.
function enlarged(image) {
  if (typeof image === "string") {
    return el("figure", { class: "absent" }, el("p", {}, "no further image"),
      el("figcaption", { dir: "auto" }, image));
  }
  return el("figure", {}, el("img", { src: image.src, alt: image.alt }),
    el("figcaption", { dir: "auto" }, image.alt));
}
