"use strict";
// The picture viewer: one picture of a card at a time, or those of all systems side by side.

const QUESTION = "Picture of the question";

const viewer = {
  pictures: [],
  at: 0,
  beside: false,

  // A click on a picture opens it.
  open(event) {
    const picture = event.target.closest(".picture")?.firstChild;
    if (!picture) return;
    this.pictures = [...picture.closest("article").querySelectorAll(".picture img")];
    this.at = this.pictures.indexOf(picture);
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

  // The pictures of each owner: the ground truth and every system shown.
  rows() {
    const owners = new Map();
    for (const picture of this.pictures.filter((one) => one.alt !== QUESTION)) {
      if (!owners.has(picture.alt)) owners.set(picture.alt, []);
      owners.get(picture.alt).push(picture);
    }
    return [...owners.values()];
  },

  toggle() {
    const picture = this.pictures[this.at];
    const rows = this.rows();
    if (!this.beside && rows.length < 2) return;
    if (this.beside) {
      const first = rows.map((row) => row[this.at]).find(Boolean);
      this.at = Math.max(0, this.pictures.indexOf(first));
    } else {
      this.at = Math.max(0, ...rows.map((row) => row.indexOf(picture)));
    }
    this.beside = !this.beside;
    this.show();
  },

  get count() {
    return this.beside ? Math.max(...this.rows().map((row) => row.length)) : this.pictures.length;
  },

  step(by) {
    this.at = Math.min(this.count - 1, Math.max(0, this.at + by));
    this.show();
  },

  show() {
    const shown = this.beside ? this.rows().map((row) => row[this.at] || row[0].alt)
      : [this.pictures[this.at]];
    $("stage").className = this.beside ? "beside" : "";
    $("stage").replaceChildren(...shown.map(enlarged));
    $("position").value = `${this.at + 1} of ${this.count}`;
    $("earlier").disabled = this.at === 0;
    $("later").disabled = this.at >= this.count - 1;
    $("beside").hidden = this.rows().length < 2;
    $("beside").setAttribute("aria-pressed", String(this.beside));
  },
};

// A picture with its caption; a name alone where its owner has fewer pictures.
function enlarged(picture) {
  if (typeof picture === "string") {
    return el("figure", { class: "absent" }, el("p", {}, "no further picture"),
      el("figcaption", { dir: "auto" }, picture));
  }
  return el("figure", {}, el("img", { src: picture.src, alt: picture.alt }),
    el("figcaption", { dir: "auto" }, picture.alt));
}
