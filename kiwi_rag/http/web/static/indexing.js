// The chart of the page Indexing: embedded passages and seconds of each run, from the rows of its table.
"use strict";

let chart;

function colour(selector) {
  return getComputedStyle(document.querySelector(selector)).color;
}

function draw() {
  const place = document.getElementById("chart");
  const rows = [...document.querySelectorAll("#runs tbody tr")].reverse();
  chart?.destroy();
  chart = undefined;
  if (!place || rows.length < 2) return;
  place.hidden = false;
  const times = rows.map((row) => Date.parse(row.querySelector("time").dateTime) / 1000);
  const values = (name) => rows.map((row) => Number(row.dataset[name]));
  const axis = (scale, side) => ({ scale, side, stroke: () => colour("footer"), grid: { show: side === 3 } });
  chart = new uPlot({
    width: place.clientWidth,
    height: 220,
    scales: { x: { time: true } },
    axes: [{ stroke: () => colour("footer") }, axis("passages", 3), axis("seconds", 1)],
    series: [
      {},
      { label: "embedded passages", scale: "passages", stroke: () => colour("nav a"), width: 2, points: { show: true } },
      { label: "seconds", scale: "seconds", stroke: () => colour("h1"), dash: [6, 4], points: { show: true } },
    ],
  }, [times, values("embedded"), values("seconds")], place);
}

requestAnimationFrame(() => setTimeout(draw)); // after the first paint
document.addEventListener("htmx:after:swap", (event) => event.target.id === "indexing" && draw());
addEventListener("resize", () => chart?.setSize({ width: document.getElementById("chart").clientWidth, height: 220 }));
document.getElementById("theme").addEventListener("click", () => chart?.redraw());
