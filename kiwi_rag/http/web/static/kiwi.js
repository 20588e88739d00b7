// What pages do only with JavaScript: the theme's switch, the keyboard, copy buttons, and times in the viewer's zone.
"use strict";

const button = document.getElementById("theme");
button.hidden = false;
button.addEventListener("click", () => {
  const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  const now = document.documentElement.dataset.theme || system;
  const next = now === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  localStorage.setItem("theme", next);
});

const typing = (element) => element.matches("input:not([type=checkbox]):not([type=range]), select, textarea");
const hits = () => [...document.querySelectorAll(".hit")];

const keys = {
  "/": () => (document.getElementById("q") || document.getElementById("find")).focus(),
  j: () => move(1),
  k: () => move(-1),
  e: () => {
    const details = document.activeElement.closest(".hit")?.querySelector("details");
    if (details) details.open = !details.open;
  },
  Enter: () => document.activeElement.matches(".hit") && document.activeElement.querySelector("h3 a")?.click(),
};

function move(step) {
  const all = hits();
  const at = all.indexOf(document.activeElement.closest(".hit"));
  all[Math.max(0, Math.min(all.length - 1, at + step))]?.focus();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (typing(event.target)) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (!(event.key in keys)) return;
  if (event.key !== "Enter") event.preventDefault();
  keys[event.key]();
});

document.documentElement.dataset.js = "";
document.addEventListener("click", async (event) => {
  const clicked = event.target.closest("code.copy, [data-copy]");
  if (!clicked) return;
  // A button copies the texts beside it that match its selector: of one hit, or of all hits of a section.
  const { copy } = clicked.dataset;
  const texts = copy ? clicked.closest("li, section").querySelectorAll(copy) : [clicked];
  await navigator.clipboard.writeText([...texts].map((one) => one.textContent).join("\n\n"));
  clicked.dataset.copied = "copied";
  setTimeout(() => delete clicked.dataset.copied, 1500);
});

// The value beside a slider, and addresses without empty fields.
document.addEventListener("input", ({ target }) => {
  const shown = target.matches("input[type=range]") && target.parentElement.querySelector("output");
  if (shown) shown.value = Number(target.value).toFixed(2);
});

document.addEventListener("htmx:config:request", ({ detail }) => {
  const fields = detail.ctx.request.body;
  if (detail.ctx.request.method !== "GET" || !(fields instanceof FormData)) return;
  for (const [name, value] of [...fields]) {
    if (value === "" || (!fields.has("compare") && ["alpha2", "k2"].includes(name))) fields.delete(name);
  }
});

function showLocalTimes() {
  for (const time of document.querySelectorAll("time[datetime]:not([title])")) {
    time.title = time.textContent;
    time.textContent = new Date(time.dateTime).toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
  }
}
showLocalTimes();
document.addEventListener("htmx:after:swap", showLocalTimes);
