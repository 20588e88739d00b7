import assert from "node:assert/strict";
import { test } from "node:test";

import { below, failedFiles, hits, stats } from "../src/replies";

test("counts are read, and an index that is not finished is one", () => {
  const said = { root: "/w", documents: 3, passages: 9, complete: false, run: "begun" };
  assert.deepEqual(stats(said), { root: "/w", documents: 3, passages: 9, indexed: true });
  assert.equal(stats({ documents: 0, passages: 0, complete: true }).indexed, true);
  assert.equal(stats({ documents: 0, passages: 0, complete: false, run: "partly" }).indexed, true);
  assert.equal(stats({ documents: 0, passages: 0, complete: false, run: "" }).indexed, false);
});

test("answers of another form are empty, not a crash", () => {
  for (const data of [null, [], "x", 7, { hits: 7, failed: {}, documents: "9" }, { hits: [null, 7], failed: [[]] }]) {
    assert.equal(stats(data).documents, 0);
    assert.ok(failedFiles(data).every((one) => one.path === ""));
    assert.deepEqual(hits(data, "/w"), []);
  }
});

test("hits lie below the root, and nowhere else", () => {
  const found = hits(
    {
      hits: [
        { path: "docs/a.md", start_line: 3, end_line: 9, heading: ["A", "B"], text: "t", score: 0.5 },
        { path: "../etc/passwd", start_line: 1 },
        { path: "/etc/passwd", start_line: 1 },
        { path: "docs/../../x" },
        { path: "" },
        { path: "..strange/b.md", start_line: -4 },
      ],
    },
    "/repo",
  );
  assert.deepEqual(found.map(({ file, startLine }) => [file, startLine]), [
    ["/repo/docs/a.md", 3],
    ["/repo/..strange/b.md", 1],
  ]);
  assert.equal(found[0]?.heading, "A › B");
});

test("a path below a folder is relative; the folder itself and others have none", () => {
  assert.equal(below("/w", "/w/a/b.md"), "a/b.md");
  assert.equal(below("/w", "/w"), undefined);
  assert.equal(below("/w", "/words/a.md"), undefined);
  assert.equal(below("/w", "/a.md"), undefined);
});
