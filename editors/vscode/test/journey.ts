/**
 * A user's way with the real `kiwi`: open a folder, let it be indexed, save a file, search, delete it.
 *
 *     node out/test/journey.js PROGRAM FOLDER
 *
 * Prints what the status bar said after each step, and what was found, as JSON. Run by tests/interfaces/test_vscode.py.
 */

import { rmSync, writeFileSync } from "node:fs";
import * as path from "node:path";

import { file, newEditor } from "./vscode-double";
import { pause } from "./fake";

const [program = "", folder = ""] = process.argv.slice(2);
const editor = newEditor();
editor.settings = { "kiwi.path": program, "kiwi.indexOnOpen": "always", "kiwi.debounce": 50 };
const context = { extension: { packageJSON: { version: "0" } }, subscriptions: [] as { dispose(): unknown }[] };
const extension = require("../src/extension") as { activate(to: object): void; deactivate(): void };

async function settled(): Promise<string> {
  const end = Date.now() + 60_000;
  do {
    await pause(400);
  } while (/spin/.test(editor.bar.text) && Date.now() < end);
  return `${editor.bar.text} | ${editor.bar.tooltip}`;
}

async function journey(): Promise<object> {
  editor.openFolder(folder);
  extension.activate(context);
  const opened = await settled();
  const added = path.join(folder, "docs/-tide & sluice.md");
  writeFileSync(added, "# Tide\n\nThe sluice opens twice a day.\n");
  editor.save(added);
  const saved = await settled();
  editor.types = "when does the sluice open";
  await editor.runs("kiwi.search");
  rmSync(added);
  editor.deleted.fire({ files: [file(added)] });
  const deleted = await settled();
  const { picks, opened: shown, messages, log } = editor;
  return { opened, saved, deleted, picks: picks.map(({ label }) => label), shown, messages, log };
}

void journey().then((told) => {
  console.log(JSON.stringify(told, null, 2));
  context.subscriptions.forEach((one) => one.dispose());
  extension.deactivate();
});
