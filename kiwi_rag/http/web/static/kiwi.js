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

// What a person who does not see the page would miss.
const said = document.createElement("p");
said.className = "hidden";
said.role = "status";
document.body.append(said);

document.documentElement.dataset.js = "";
document.addEventListener("click", async (event) => {
  const button = event.target.closest("button[data-copy]");
  if (!button) return;
  // The texts that match its selector, of one hit or of all hits of a section; without one, the code before it.
  const { copy } = button.dataset;
  const texts = copy ? [...button.closest("li, section").querySelectorAll(copy)] : [button.previousElementSibling];
  const written = navigator.clipboard.writeText(texts.map((one) => one.textContent).join("\n\n"));
  button.dataset.copied = said.textContent = await written.then(() => "copied", () => "not copied");
  setTimeout(() => { delete button.dataset.copied; said.textContent = ""; }, 1500);
});

function addCopyButton(code) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "quiet";
  button.dataset.copy = "";
  button.textContent = "Copy";
  button.setAttribute("aria-label", `Copy ${code.textContent}`);
  code.after(button);
}

function localise(time) {
  const at = new Date(time.dateTime);
  if (isNaN(at)) return;
  time.title = time.dateTime;
  time.textContent = at.toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
}

// Also in what arrives later; each element once.
function enhance() {
  for (const time of document.querySelectorAll("time[datetime]:not([title])")) localise(time);
  for (const code of document.querySelectorAll("code.copy")) {
    if (!code.nextElementSibling?.matches("[data-copy]")) addCopyButton(code);
  }
}
enhance();
new MutationObserver(enhance).observe(document.getElementById("main"), { childList: true, subtree: true });
