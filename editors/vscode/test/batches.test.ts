import assert from "node:assert/strict";
import { test } from "node:test";

import { type Batch, Batches } from "../src/batches";
import { pause, until } from "./fake";

/** Batches that take `cost` milliseconds each, and what was handed over. */
function collected(cost = 0, wait = 20): { batches: Batches; done: Batch[]; most: () => number } {
  const done: Batch[] = [];
  let [now, most] = [0, 0];
  const work = async (batch: Batch): Promise<void> => {
    most = Math.max(most, ++now);
    done.push(batch);
    await pause(cost);
    now -= 1;
  };
  return { batches: new Batches(work, () => wait), done, most: () => most };
}

test("changes that come together go together, each file once", async () => {
  const { batches, done } = collected();
  for (const file of ["b.md", "a.md", "b.md"]) {
    batches.add("/w", file);
  }
  await until(() => done.length > 0, "a batch");
  await pause(60);
  assert.deepEqual(done, [{ folder: "/w", paths: ["a.md", "b.md"], force: false }]);
});

test("somebody who saves all the time does not wait for ever", async () => {
  const { batches, done } = collected(0, 40);
  for (let at = 0; at < 12; at++) {
    batches.add("/w", `${at}.md`);
    await pause(10);
  }
  assert.ok(done.length >= 2, `${done.length} batches`);
});

test("never two at a time, and what comes meanwhile goes into the next", async () => {
  const { batches, done, most } = collected(60, 1);
  batches.add("/w", "a.md");
  await until(() => done.length === 1, "the first");
  batches.add("/w", "b.md");
  batches.add("/v", "c.md");
  batches.add("/w", "d.md");
  await until(() => done.length === 3, "three batches");
  await batches.idle();
  assert.equal(most(), 1);
  assert.deepEqual(done.slice(1).map(({ paths }) => paths), [["b.md", "d.md"], ["c.md"]]);
});

test("what comes in the moment a run ends is not forgotten", async () => {
  const done: Batch[] = [];
  const batches: Batches = new Batches(
    async (batch) => {
      done.push(batch);
      if (done.length === 1) {
        void Promise.resolve().then(() => Promise.resolve()).then(() => batches.add("/w", "late.md"));
      }
    },
    () => 1,
  );
  batches.add("/w", "a.md");
  await until(() => done.length === 2, "the late one");
});

test("a look at everything takes the files along, and so do too many of them", async () => {
  const { batches, done } = collected();
  batches.add("/w", "a.md");
  batches.addAll("/w");
  batches.add("/w", "b.md");
  for (let at = 0; at < 201; at++) {
    batches.add("/many", `${at}.md`);
  }
  batches.add("/long", "x".repeat(20_001));
  await until(() => done.length === 3, "three batches");
  assert.deepEqual(done.map(({ paths }) => paths), [undefined, undefined, undefined]);
});

test("who asked for an index gets one, whoever else asks", async () => {
  const { batches, done } = collected();
  batches.addNow("/w", true);
  batches.addNow("/w", false);
  await until(() => done.length === 1, "a batch");
  assert.equal(done[0]?.force, true);
});

test("closed folders and a closed window want nothing more", async () => {
  const { batches, done } = collected();
  batches.add("/w", "a.md");
  batches.drop("/w");
  await pause(50);
  batches.add("/w", "a.md");
  batches.dispose();
  batches.add("/w", "b.md");
  await pause(50);
  assert.deepEqual(done, []);
});
