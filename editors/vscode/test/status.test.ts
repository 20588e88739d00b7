import assert from "node:assert/strict";
import { test } from "node:test";

import { NEW, shown, type Standing } from "../src/status";

const folder = (news: Partial<Standing>): Standing => ({ name: "shop", ...NEW, ...news });
const ready = folder({ phase: "ready", passages: 3412, documents: 120 });

test("each state has its text and what a click does", () => {
  const texts: [Standing, string, string][] = [
    [folder({}), "$(search) Kiwi", "kiwi.showLog"],
    [folder({ phase: "unindexed" }), "$(circle-slash) Kiwi: not indexed", "kiwi.index"],
    [folder({ phase: "indexing", passages: 7 }), "$(sync~spin) Kiwi: 7 passages", "kiwi.showLog"],
    [ready, "$(search) Kiwi: 3,412 passages", "kiwi.search"],
    [folder({ phase: "failed" }), "$(error) Kiwi failed", "kiwi.showLog"],
    [folder({ phase: "missing" }), "$(warning) Kiwi not found", "kiwi.install"],
  ];
  for (const [standing, text, command] of texts) {
    assert.deepEqual([shown([standing])?.text, shown([standing])?.command], [text, command]);
  }
  assert.equal(shown([]), undefined);
});

test("failures say what mends them", () => {
  const failed = folder({ phase: "failed", message: "The disk is full.", hint: "make room" });
  assert.equal(shown([failed])?.tooltip, "shop: The disk is full. → make room");
  assert.equal(shown([failed])?.severity, "error");
});

test("files that could not be indexed are named, five of them", () => {
  const failed = Array.from({ length: 7 }, (_, at) => ({ path: `${at}.yaml`, message: "bad", hint: "mend it" }));
  const said = shown([{ ...ready, failed }]);
  assert.equal(said?.text, "$(warning) Kiwi: 3,412 passages");
  assert.match(said?.tooltip ?? "", /3,412 passages of 120 documents; 7 could not be indexed\n {2}0.yaml: bad → mend it/);
  assert.equal(said?.tooltip.split("\n").length, 6);
});

test("folders count together, and the worst of them is what is shown", () => {
  const two = [ready, folder({ name: "docs", phase: "ready", passages: 8, documents: 2 })];
  assert.equal(shown(two)?.text, "$(search) Kiwi: 3,420 passages");
  assert.equal(shown([...two, folder({ phase: "failed" })])?.severity, "error");
  assert.equal(shown([...two, folder({ phase: "unindexed" })])?.text, "$(search) Kiwi: 3,420 passages");
});
