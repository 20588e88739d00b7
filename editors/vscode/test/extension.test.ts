import assert from "node:assert/strict";
import { mkdirSync, readFileSync, rmSync } from "node:fs";
import * as path from "node:path";
import { afterEach, beforeEach, test } from "node:test";

import { type Editor, file, newEditor } from "./vscode-double";
import { Fake, pause, until } from "./fake";

interface Context {
  readonly extension: { readonly packageJSON: { readonly version: string } };
  readonly subscriptions: { dispose(): unknown }[];
}
// eslint-disable-next-line -- after the double: what it imports as "vscode" is that
const extension = require("../src/extension") as { activate(context: Context): void; deactivate(): void };
const manifest = JSON.parse(readFileSync(path.join(__dirname, "../../package.json"), "utf8"));

const HITS = [
  { path: "docs/a.md", start_line: 7, end_line: 9, heading: ["Check-in", "API"], text: "POST\n  $(x) it", score: 0.9 },
  { path: "../../etc/passwd", start_line: 1, end_line: 1, heading: [], text: "root", score: 0.8 },
  { path: "docs/b.md", start_line: 2, end_line: 2, heading: [], text: "b", score: 0.7 },
];

let fake: Fake;
let editor: Editor;
let shop: string;
let context: Context;

beforeEach(() => {
  fake = new Fake();
  editor = newEditor();
  editor.settings = { "kiwi.path": fake.program, "kiwi.debounce": 30 };
  shop = fake.folder("shop", "docs/a.md", "docs/b.md", ".ai/workspace.yaml");
  context = { extension: { packageJSON: manifest }, subscriptions: [] };
});

afterEach(() => {
  context.subscriptions.forEach((one) => one.dispose());
  extension.deactivate();
  fake.remove();
});

/** Open a folder in which everything is up to date, and wait until that is known. */
async function opened(...folders: string[]): Promise<void> {
  folders.forEach((folder) => editor.openFolder(folder));
  extension.activate(context);
  await shows("$(search) Kiwi: ");
}

async function shows(text: string): Promise<void> {
  await until(() => editor.bar.visible && editor.bar.text.startsWith(text), `${text}, but ${editor.bar.text}`);
}

async function indexed(times: number): Promise<readonly (readonly string[])[]> {
  await until(() => fake.argsOf("index").length >= times, `${times} runs`);
  await shows("$(search)");
  await pause(120);
  return fake.argsOf("index");
}

test("an indexed folder is brought up to date when it is opened, and counted", async () => {
  await opened(shop);
  assert.deepEqual(await indexed(1), [[]]);
  assert.equal(fake.calls[0]?.cwd, shop);
  assert.equal(editor.bar.text, "$(search) Kiwi: 3,412 passages");
  assert.equal(editor.bar.tooltip, "shop: 3,412 passages of 12 documents");
  assert.equal(editor.bar.command, "kiwi.search");
});

test("a folder without an index gets one when the user says so, or always where that is wanted", async () => {
  fake.says("stats", { out: { documents: 0, passages: 0, complete: false } });
  editor.openFolder(shop);
  extension.activate(context);
  await shows("$(circle-slash) Kiwi: not indexed");
  editor.save(path.join(shop, "docs/a.md"));
  await pause(150);
  assert.deepEqual(fake.argsOf("index"), [], "nobody asked for an index");
  fake.says("index", { wait: 50 });
  fake.says("stats", { out: { documents: 2, passages: 4, complete: true } });
  await editor.runs(editor.bar.command);
  await shows("$(sync~spin)");
  await shows("$(search) Kiwi: 4 passages");
  assert.equal(fake.argsOf("index").length, 1);
});

test("the setting can also be: always, or never", async () => {
  editor.settings["kiwi.indexOnOpen"] = "never";
  await opened(shop);
  assert.deepEqual(fake.argsOf("index"), []);
  editor.settings["kiwi.indexOnOpen"] = "always";
  fake.says("stats", { out: { documents: 0, passages: 0, complete: false } });
  editor.openFolder(fake.folder("new"));
  await until(() => fake.argsOf("index").length === 1, "the index of the new folder");
});

test("a folder that is no project is not even asked about, and a folder of a project is the project's", async () => {
  const plain = fake.folder("plain", "a.md");
  editor.openFolder(plain);
  extension.activate(context);
  await shows("$(circle-slash) Kiwi: not indexed");
  assert.deepEqual(fake.calls, []);
  editor.closeFolder(plain);
  fake.says("stats", { out: { documents: 2, passages: 4, complete: true, root: shop } });
  fake.says("search", { out: { hits: HITS } });
  editor.openFolder(path.join(shop, "docs"));
  await shows("$(search) Kiwi: 4 passages");
  editor.types = "check-in";
  await editor.runs("kiwi.search");
  assert.deepEqual(editor.opened, [{ file: path.join(shop, "docs/a.md"), line: 7 }]);
});

test("saves that come together are indexed together, by paths below the folder", async () => {
  await opened(shop);
  for (const name of ["docs/b.md", "docs/a.md", "docs/b.md", ".git/COMMIT_EDITMSG"]) {
    editor.save(path.join(shop, name));
  }
  editor.save(path.join(fake.root, "outside.md"));
  editor.save(path.join(shop, "docs/a.md"), "untitled");
  assert.deepEqual(await indexed(2), [[], ["--file=docs/a.md", "--file=docs/b.md"]]);
});

test("files that are created are indexed; what is renamed or deleted, and folders, mean a look at everything", async () => {
  await opened(shop);
  editor.created.fire({ files: [file(path.join(shop, "docs/a.md"))] });
  assert.deepEqual((await indexed(2)).at(-1), ["--file=docs/a.md"]);
  editor.deleted.fire({ files: [file(path.join(shop, "docs/gone.md"))] });
  assert.deepEqual((await indexed(3)).at(-1), []);
  const [oldUri, newUri] = [file(path.join(shop, "docs/old.md")), file(path.join(shop, "docs/b.md"))];
  editor.renamed.fire({ files: [{ oldUri, newUri }] });
  assert.deepEqual((await indexed(4)).at(-1), []);
  mkdirSync(path.join(shop, "pasted"));
  editor.created.fire({ files: [file(path.join(shop, "pasted"))] });
  assert.deepEqual((await indexed(5)).at(-1), []);
});

test("who does not want it on save does not get it", async () => {
  editor.settings["kiwi.indexOnSave"] = false;
  await opened(shop);
  editor.save(path.join(shop, "docs/a.md"));
  editor.deleted.fire({ files: [file(path.join(shop, "docs/b.md"))] });
  assert.deepEqual(await indexed(1), [[]]);
});

test("one process indexes at a time, whichever folder it is for", async () => {
  const docs = fake.folder("docs", "x.md", ".ai/workspace.yaml");
  fake.says("index", { wait: 80 });
  await opened(shop, docs);
  editor.save(path.join(docs, "x.md"));
  editor.save(path.join(shop, "docs/a.md"));
  await indexed(4);
  const runs = fake.calls.filter(({ args }) => args[2] === "index");
  assert.equal(fake.overlapped, false, "two ran at once");
  assert.deepEqual(new Set(runs.map(({ cwd }) => cwd)), new Set([shop, docs]));
  assert.equal(editor.bar.text, "$(search) Kiwi: 6,824 passages");
});

test("while it indexes the bar says so, and when it fails, why and what mends it", async () => {
  const error = { code: "model", message: "No weights.", hint: "kiwi doctor" };
  fake.says("index", { exit: 1, err: JSON.stringify({ error }), wait: 100 });
  editor.openFolder(shop);
  extension.activate(context);
  await shows("$(sync~spin)");
  await shows("$(error) Kiwi failed");
  assert.equal(editor.bar.tooltip, "shop: No weights. → kiwi doctor");
  assert.equal(editor.bar.backgroundColor?.id, "statusBarItem.errorBackground");
  await editor.runs(editor.bar.command);
  assert.ok(editor.logShown);
  assert.ok(editor.log.some((line) => line.includes("No weights.")));
  fake.says("index", {});
  editor.save(path.join(shop, "docs/a.md"));
  await shows("$(search)");
});

test("files that failed are told until a run does better", async () => {
  const failed = [{ path: "docs/a.md", code: "yaml", message: "line 3", hint: "mend it" }];
  fake.says("index", { exit: 3, out: { failed } });
  editor.openFolder(shop);
  extension.activate(context);
  await shows("$(warning) Kiwi: 3,412 passages");
  assert.match(editor.bar.tooltip, /docs\/a.md: line 3 → mend it/);
  fake.says("index", { out: { failed: [] } });
  editor.save(path.join(shop, "docs/b.md"));
  await until(() => fake.argsOf("stats").length === 3, "a run for the other file");
  await shows("$(warning)");
  editor.save(path.join(shop, "docs/a.md"));
  await shows("$(search)");
});

test("without kiwi it says so, offers the setting, and looks again when it is changed", async () => {
  editor.settings["kiwi.path"] = path.join(fake.root, "nowhere/kiwi");
  editor.openFolder(shop);
  extension.activate(context);
  await shows("$(warning) Kiwi not found");
  editor.clicks = "Set kiwi.path";
  await editor.runs(editor.bar.command);
  assert.match(editor.messages[0] ?? "", /uv tool install/);
  assert.deepEqual(editor.executed, [["workbench.action.openSettings", "kiwi.path"]]);
  editor.settings["kiwi.path"] = fake.program;
  editor.configured.fire({ affectsConfiguration: (name) => name === "kiwi.path" });
  await shows("$(search) Kiwi: 3,412 passages");
});

test("a folder that is not trusted is left alone until it is", async () => {
  editor.isTrusted = false;
  editor.openFolder(shop);
  extension.activate(context);
  editor.save(path.join(shop, "docs/a.md"));
  await pause(100);
  assert.deepEqual([fake.calls, editor.commands.size, editor.bar.visible], [[], 0, false]);
  editor.isTrusted = true;
  editor.granted.fire();
  await shows("$(search) Kiwi: 3,412 passages");
});

test("without a folder nothing runs and nothing shows; folders come and go", async () => {
  extension.activate(context);
  await pause(50);
  assert.deepEqual([fake.calls, editor.bar.visible], [[], false]);
  editor.openFolder(shop);
  await shows("$(search) Kiwi: 3,412 passages");
  editor.closeFolder(shop);
  assert.equal(editor.bar.visible, false);
  editor.folders.push({ uri: { scheme: "vscode-vfs", fsPath: "/repo" }, name: "repo", index: 0 });
  editor.foldersChanged.fire({ added: editor.folders, removed: [] });
  assert.equal(editor.bar.visible, false);
});

test("another process that writes is waited for", async () => {
  const { Workspace } = require("../src/workspace") as typeof import("../src/workspace");
  const { runner } = require("../src/program") as typeof import("../src/program");
  const error = { code: "busy", message: "Another process is writing.", hint: "" };
  fake.says("index", { exit: 1, err: JSON.stringify({ error }) });
  const workspace = new Workspace(runner(() => fake.program, () => {}), () => {}, () => ({ debounce: 1 }), 20);
  workspace.open(shop, "shop", "indexed");
  await until(() => fake.argsOf("index").length === 2, "a second try");
  assert.equal(workspace.standings[0]?.phase === "failed", false);
  fake.says("index", {});
  await until(() => workspace.standings[0]?.phase === "ready" && !workspace.standings[0].message, "the run after it");
  workspace.dispose();
});

test("a search asks for a query, lists hits, and opens the chosen one at its line", async () => {
  await opened(shop);
  fake.says("search", { out: { hits: HITS } });
  editor.settings["kiwi.limit"] = 7;
  editor.types = '--explain "$(touch x)"';
  editor.picksAt = 1;
  await editor.runs("kiwi.search");
  assert.deepEqual(fake.argsOf("search"), [["--limit=7", "--", '--explain "$(touch x)"']]);
  assert.deepEqual(editor.picks.map(({ label }) => label), ["docs/a.md:7", "docs/b.md:2"]);
  assert.deepEqual([editor.picks[0]?.description, editor.picks[0]?.detail], ["Check-in › API", "POST \\$(x) it"]);
  assert.deepEqual(editor.opened, [{ file: path.join(shop, "docs/b.md"), line: 2 }]);
});

test("several folders are searched, the best hit first, each with its folder's name", async () => {
  const docs = fake.folder("docs", ".ai/workspace.yaml");
  await opened(shop, docs);
  fake.says("search", { out: { hits: HITS } });
  editor.types = "check-in";
  await editor.runs("kiwi.search");
  const labels = editor.picks.map(({ label }) => label);
  assert.deepEqual(labels, ["shop/docs/a.md:7", "docs/docs/a.md:7", "shop/docs/b.md:2", "docs/docs/b.md:2"]);
});

test("a search that fails, finds nothing, or is given up says so or stays silent", async () => {
  await opened(shop);
  editor.types = "  ";
  await editor.runs("kiwi.search");
  editor.types = "nothing";
  fake.says("search", { out: { hits: [] } });
  await editor.runs("kiwi.search");
  fake.says("search", { exit: 1, err: JSON.stringify({ error: { code: "x", message: "It broke.", hint: "mend it" } }) });
  await editor.runs("kiwi.search");
  assert.deepEqual(editor.messages, ["Kiwi found nothing for “nothing”.", "It broke. → mend it"]);
  fake.says("search", { wait: 60_000 });
  editor.cancelsAfter = 50;
  await editor.runs("kiwi.search");
  assert.equal(editor.messages.length, 2);
});

test("closing the window ends what runs, and lets go of everything", async () => {
  fake.says("index", { wait: 300 });
  editor.openFolder(shop);
  extension.activate(context);
  await shows("$(sync~spin)");
  await pause(100);
  context.subscriptions.forEach((one) => one.dispose());
  extension.deactivate();
  await pause(400);
  assert.deepEqual(fake.argsOf("index"), [], "it went on");
  assert.deepEqual([editor.listening(), editor.commands.size], [0, 0]);
  rmSync(shop, { recursive: true });
});

test("what the manifest offers is what the code has, and no workspace chooses the program", async () => {
  extension.activate(context);
  const offered = manifest.contributes.commands.map(({ command }: { command: string }) => command);
  assert.deepEqual([...editor.commands.keys()].sort(), offered.sort());
  const properties = manifest.contributes.configuration.properties;
  assert.deepEqual(Object.keys(properties), [
    "path", "embeddingProvider", "gatewayUrl", "indexOnOpen", "indexOnSave", "limit", "debounce",
  ].map((n) => `kiwi.${n}`));
  assert.equal(properties["kiwi.path"].scope, "machine");
  assert.equal(manifest.capabilities.untrustedWorkspaces.supported, false);
  assert.deepEqual(manifest.activationEvents, ["onStartupFinished"]);
});

test("agents are offered a server for each folder, by the program's absolute path", async () => {
  const other = fake.folder("other", "a.md");
  await opened(shop, other);
  const provider = editor.servers?.get("kiwi");
  assert.deepEqual(manifest.contributes.mcpServerDefinitionProviders.map((one: { id: string }) => one.id), ["kiwi"]);
  const offered = provider?.provideMcpServerDefinitions() ?? [];
  assert.deepEqual(offered.map(({ label, cwd }) => [label, cwd?.fsPath]), [["Kiwi: shop", shop], ["Kiwi: other", other]]);
  for (const { command, args, env, version } of offered) {
    assert.deepEqual([command, args, env, version], [fake.program, ["mcp"], {}, manifest.version]);
  }
  let changes = 0;
  provider?.onDidChangeMcpServerDefinitions(() => changes++);
  editor.closeFolder(other);
  assert.deepEqual([changes, provider?.provideMcpServerDefinitions().length], [1, 1]);
  editor.settings["kiwi.path"] = "/nowhere/kiwi";
  editor.configured.fire({ affectsConfiguration: (name) => name === "kiwi.path" });
  assert.deepEqual([changes, provider?.provideMcpServerDefinitions()], [2, []]);
  context.subscriptions.forEach((one) => one.dispose());
  assert.equal(editor.servers?.size, 0);
});

test("a gateway and a provider reach every process and server, and a workspace cannot set them", async () => {
  editor.settings["kiwi.gatewayUrl"] = "http://127.0.0.1:8000/ai";
  fake.echoes("KIWI_EMBEDDING_PROVIDER", "KIWI_EMBEDDING_BASE_URL");
  await opened(shop);
  const expected = { KIWI_EMBEDDING_PROVIDER: "openai", KIWI_EMBEDDING_BASE_URL: "http://127.0.0.1:8000/ai" };
  const provider = editor.servers?.get("kiwi");
  assert.deepEqual(provider?.provideMcpServerDefinitions()[0]?.env, expected);
  assert.deepEqual(fake.echoed[0], Object.values(expected));
  editor.settings["kiwi.embeddingProvider"] = "ollama";
  assert.equal(provider?.provideMcpServerDefinitions()[0]?.env["KIWI_EMBEDDING_PROVIDER"], "ollama");
  const { properties } = manifest.contributes.configuration;
  assert.deepEqual([properties["kiwi.gatewayUrl"].scope, properties["kiwi.embeddingProvider"].scope], ["machine", "machine"]);
});

test("a VS Code that knows no such servers is offered none", async () => {
  editor.servers = undefined;
  newEditor(editor);
  await opened(shop);
  assert.equal(editor.bar.command, "kiwi.search");
});
