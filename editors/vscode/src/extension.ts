/** Wires VS Code's events to the workspace, and how it stands to the status bar. */

import * as vscode from "vscode";

import { find } from "./finding";
import { offerServers } from "./mcp";
import { runner } from "./program";
import { shown, type Standing } from "./status";
import { Workspace } from "./workspace";

const INSTALL =
  "The kiwi command was not found. Install Kiwi (uv tool install, or pipx install, of its repository), so that it is " +
  "on the PATH that VS Code sees, or set kiwi.path to the program.";
const PROGRAM_SETTINGS = ["kiwi.path", "kiwi.embeddingProvider", "kiwi.gatewayUrl"];
const SET_PATH = "Set kiwi.path";
const AGAIN = "Look again";

let workspace: Workspace | undefined;

export function activate(context: vscode.ExtensionContext): void {
  if (vscode.workspace.isTrusted) {
    start(context);
  } else {
    context.subscriptions.push(vscode.workspace.onDidGrantWorkspaceTrust(() => start(context)));
  }
}

/** End the process that runs, if one does. */
export function deactivate(): void {
  workspace?.dispose();
  workspace = undefined;
}

function start(context: vscode.ExtensionContext): void {
  const log = vscode.window.createOutputChannel("Kiwi", { log: true });
  const bar = vscode.window.createStatusBarItem("kiwi.status", vscode.StatusBarAlignment.Left);
  bar.name = "Kiwi";
  const run = runner(program, (line) => log.info(line), environment);
  const made = new Workspace(run, (folders) => present(bar, folders), () => ({ debounce: settings().get("debounce", 500) }));
  workspace = made;
  const changed = new vscode.EventEmitter<void>();
  const version = String(context.extension.packageJSON.version);
  const servers = offerServers(program, environment, onDisk, version, changed);
  context.subscriptions.push(log, bar, made, changed, ...servers, ...commands(made, log), ...events(made, changed));
  for (const folder of vscode.workspace.workspaceFolders ?? []) {
    open(made, folder);
  }
}

function commands(made: Workspace, log: vscode.LogOutputChannel): vscode.Disposable[] {
  return [
    vscode.commands.registerCommand("kiwi.index", () => onDisk().forEach((folder) => made.index(folder.uri.fsPath))),
    vscode.commands.registerCommand("kiwi.search", () => find(made)),
    vscode.commands.registerCommand("kiwi.showLog", () => log.show(true)),
    vscode.commands.registerCommand("kiwi.install", () => help(made)),
  ];
}

function events(made: Workspace, changed: vscode.EventEmitter<void>): vscode.Disposable[] {
  const written = (uri: vscode.Uri): void => onSave(uri, (folder, file) => void made.written(folder, file));
  const gone = (uri: vscode.Uri): void => onSave(uri, (folder, file) => made.gone(folder, file));
  return [
    vscode.workspace.onDidSaveTextDocument((document) => written(document.uri)),
    vscode.workspace.onDidCreateFiles((event) => event.files.forEach(written)),
    vscode.workspace.onDidDeleteFiles((event) => event.files.forEach(gone)),
    vscode.workspace.onDidRenameFiles((event) => {
      event.files.forEach((one) => (gone(one.oldUri), written(one.newUri)));
    }),
    vscode.workspace.onDidChangeWorkspaceFolders((event) => {
      event.removed.forEach((folder) => made.close(folder.uri.fsPath));
      event.added.forEach((folder) => open(made, folder));
      changed.fire();
    }),
    vscode.workspace.onDidChangeConfiguration((event) => {
      if (PROGRAM_SETTINGS.some((name) => event.affectsConfiguration(name))) {
        made.retry();
        changed.fire();
      }
    }),
  ];
}

function open(made: Workspace, folder: vscode.WorkspaceFolder): void {
  if (isOnDisk(folder)) {
    made.open(folder.uri.fsPath, folder.name, settings(folder.uri).get("indexOnOpen", "indexed"));
  }
}

/** Hand a file on disk over with the folder that it is in, where the user wants that. */
function onSave(uri: vscode.Uri, take: (folder: string, file: string) => void): void {
  const folder = uri.scheme === "file" ? vscode.workspace.getWorkspaceFolder(uri) : undefined;
  if (folder && settings(folder.uri).get("indexOnSave", true)) {
    take(folder.uri.fsPath, uri.fsPath);
  }
}

function present(bar: vscode.StatusBarItem, folders: readonly Standing[]): void {
  const said = shown(folders);
  if (!said) {
    bar.hide();
    return;
  }
  bar.text = said.text;
  bar.tooltip = said.tooltip;
  bar.command = said.command;
  bar.backgroundColor =
    said.severity === "none" ? undefined : new vscode.ThemeColor(`statusBarItem.${said.severity}Background`);
  bar.show();
}

async function help(made: Workspace): Promise<void> {
  const chosen = await vscode.window.showWarningMessage(INSTALL, SET_PATH, AGAIN);
  if (chosen === SET_PATH) {
    await vscode.commands.executeCommand("workbench.action.openSettings", "kiwi.path");
  } else if (chosen === AGAIN) {
    made.retry();
  }
}

function program(): string {
  return settings().get("path", "kiwi");
}

/** Return the variables that the settings stand for. A gateway speaks OpenAI's API, unless another one is chosen. */
function environment(): Record<string, string> {
  const url = settings().get("gatewayUrl", "");
  const provider = settings().get("embeddingProvider", "") || (url && "openai");
  return {
    ...(provider ? { KIWI_EMBEDDING_PROVIDER: provider } : {}),
    ...(url ? { KIWI_EMBEDDING_BASE_URL: url } : {}),
  };
}

function onDisk(): readonly vscode.WorkspaceFolder[] {
  return (vscode.workspace.workspaceFolders ?? []).filter(isOnDisk);
}

function settings(scope?: vscode.Uri): vscode.WorkspaceConfiguration {
  return vscode.workspace.getConfiguration("kiwi", scope);
}

function isOnDisk(folder: vscode.WorkspaceFolder): boolean {
  return folder.uri.scheme === "file";
}
