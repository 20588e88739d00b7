import assert from "node:assert/strict";
import { chmodSync, mkdirSync, writeFileSync } from "node:fs";
import * as path from "node:path";
import { afterEach, beforeEach, test } from "node:test";

import { answer, Failure, find, runner } from "../src/program";
import { Fake, pause } from "./fake";

let fake: Fake;
let folder: string;
let lines: string[];

beforeEach(() => {
  fake = new Fake();
  folder = fake.folder("open");
  lines = [];
});
afterEach(() => fake.remove());

const run = (...args: string[]) => runner(() => fake.program, (line) => lines.push(line))(["workspace", ...args], folder);

test("a program is found by its name in absolute folders of the PATH alone", () => {
  const elsewhere = path.relative(process.cwd(), fake.bin);
  assert.equal(find("kiwi", { PATH: [elsewhere, "", ".", fake.bin].join(path.delimiter) }), fake.program);
  assert.equal(find("kiwi", { PATH: [elsewhere, "", "."].join(path.delimiter) }), undefined);
  assert.equal(find(fake.program, {}), fake.program);
  assert.equal(find(path.relative(process.cwd(), fake.program), { PATH: fake.bin }), undefined);
  assert.equal(find("kiwi", {}), undefined);
});

test("what cannot be run is no program", () => {
  chmodSync(fake.program, 0o644);
  assert.equal(find("kiwi", { PATH: fake.bin }), undefined);
  mkdirSync(path.join(fake.root, "other", "kiwi"), { recursive: true });
  assert.equal(find("kiwi", { PATH: path.join(fake.root, "other") }), undefined);
});

test("on Windows it is a program that needs no shell", () => {
  for (const name of ["kiwi.cmd", "kiwi.exe"]) {
    writeFileSync(path.join(fake.bin, name), "");
    chmodSync(path.join(fake.bin, name), 0o755);
  }
  assert.equal(find("kiwi", { Path: fake.bin }, "win32"), path.join(fake.bin, "kiwi.exe"));
});

test("arguments arrive as they are, in the folder", async () => {
  const strange = ["--file=-a b.md", "--file=$(touch x);`touch y`", "--file=\"'|&>é\n.md", "--", "--json"];
  await run("index", ...strange);
  assert.deepEqual(fake.calls[0]?.args, ["--json", "workspace", "index", ...strange]);
  assert.equal(fake.calls[0]?.cwd, folder);
});

test("data come from stdout, notices go to the log, and exit code 3 is a part done", async () => {
  fake.says("index", { out: { passages: 7 }, err: "reading…\n", exit: 3 });
  assert.deepEqual(await run("index"), { data: { passages: 7 }, partly: true });
  assert.ok(lines.includes("reading…"));
  assert.ok(lines[0]?.includes("kiwi --json workspace index"));
});

test("an error is what kiwi says last on stderr", async () => {
  const error = { code: "busy", message: "Another process writes.", hint: "wait" };
  fake.says("index", { err: `a notice {"error"\n${JSON.stringify({ error }, null, 2)}\n`, exit: 1 });
  await assert.rejects(run("index"), { code: "busy", message: "Another process writes.", hint: "wait", exit: 1 });
});

test("without such an error it is the last line, and without that the exit code", async () => {
  assert.throws(() => answer(1, "", "Traceback\nMemoryError\n"), { code: "exit", message: "MemoryError" });
  assert.throws(() => answer(null, "", ""), { message: "kiwi ended with a signal." });
  assert.throws(() => answer(2, "{}", ""), { exit: 2 });
});

test("an answer that is not JSON is no answer", async () => {
  fake.says("stats", { out: "Usage: kiwi" });
  await assert.rejects(run("stats"), { code: "answer" });
});

test("no program is an error that says so", async () => {
  const missing = runner(() => "/nowhere/kiwi", () => undefined);
  await assert.rejects(missing([], folder), (error: Failure) => error.code === "missing" && error.hint.includes("kiwi.path"));
});

test("a folder that is gone is an error, not a crash", async () => {
  await assert.rejects(runner(() => fake.program, () => undefined)(["x"], path.join(folder, "gone")), { code: "start" });
});

test("stopping ends the process", async () => {
  fake.says("index", { wait: 60_000 });
  const stop = new AbortController();
  const begun = Date.now();
  const running = runner(() => fake.program, () => undefined)(["workspace", "index"], folder, stop.signal);
  setTimeout(() => stop.abort(), 100);
  await assert.rejects(running, { code: "stopped" });
  assert.ok(Date.now() - begun < 5_000);
  await assert.rejects(runner(() => fake.program, () => undefined)(["x"], folder, stop.signal), { code: "stopped" });
  await pause(50);
  assert.deepEqual(fake.calls, []);
});
