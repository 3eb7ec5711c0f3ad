"use strict";
// The image viewer: one image of a card at a time, or those of all systems and repeats
// side by side.

const QUESTION = "Image of the question";

const viewer = {
  images: [],
  frames: [], // what is shown at a time: an image, or one of every owner
  at: 0,
  beside: false,

  // A click on an image opens it.
  open(event) {
    const image = event.target.closest(".image")?.firstChild;
    if (!image) return;
    this.images = [...image.closest("article").querySelectorAll(".image img")];
    this.arrange(false, image);
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
    else if (event.key === "s" && !$("beside").hidden) this.toggle();
    else return;
    event.preventDefault();
  },

  toggle() {
    this.arrange(!this.beside, this.frames[this.at].find((one) => one.alt));
  },

  // Owners are the ground truth and every system shown, each repeat by itself; a name alone
  // stands for one that has fewer images.
  arrange(beside, image) {
    const owned = this.images.filter((one) => one.alt !== QUESTION);
    const rows = [...new Set(owned.map((one) => one.alt))].map((alt) => owned.filter((one) => one.alt === alt));
    const most = Math.max(...rows.map((row) => row.length));
    this.frames = beside ? Array.from({ length: most }, (_, k) => rows.map((row) => row[k] || row[0].alt))
      : this.images.map((one) => [one]);
    this.beside = beside;
    this.at = Math.max(0, this.frames.findIndex((frame) => frame.includes(image)));
    $("beside").hidden = rows.length < 2;
    $("beside").setAttribute("aria-pressed", String(beside));
    $("stage").className = beside ? "beside" : "";
    this.step(0);
  },

  step(by) {
    const last = this.frames.length - 1;
    this.at = Math.min(last, Math.max(0, this.at + by));
    $("stage").replaceChildren(...this.frames[this.at].map(enlarged));
    $("position").value = `${this.at + 1} of ${last + 1}`;
    $("earlier").disabled = this.at === 0;
    $("later").disabled = this.at === last;
  },
};

// An image with its caption.
function enlarged(image) {
  if (typeof image === "string") {
    return el("figure", { class: "absent" }, el("p", {}, "no further image"),
      el("figcaption", { dir: "auto" }, image));
  }
  return el("figure", {}, el("img", { src: image.src, alt: image.alt }),
    el("figcaption", { dir: "auto" }, image.alt));
}
