/** Wires VS Code's events to the workspace, and how it stands to the status bar. */

import * as vscode from "vscode";

import { find } from "./finding";
import { runner } from "./program";
import { shown, type Standing } from "./status";
import { Workspace } from "./workspace";

const INSTALL =
  "The kiwi command was not found. Install Kiwi (uv tool install, or pipx install, of its repository), so that it is " +
  "on the PATH that VS Code sees, or set kiwi.path to the program.";
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
  const run = runner(() => settings().get("path", "kiwi"), (line) => log.info(line));
  const made = new Workspace(run, (folders) => present(bar, folders), () => ({ debounce: settings().get("debounce", 500) }));
  workspace = made;
  context.subscriptions.push(log, bar, made, ...commands(made, log), ...events(made));
  for (const folder of vscode.workspace.workspaceFolders ?? []) {
    open(made, folder);
  }
}

function commands(made: Workspace, log: vscode.LogOutputChannel): vscode.Disposable[] {
  const folders = (): string[] => (vscode.workspace.workspaceFolders ?? []).filter(isOnDisk).map((one) => one.uri.fsPath);
  return [
    vscode.commands.registerCommand("kiwi.index", () => folders().forEach((folder) => made.index(folder))),
    vscode.commands.registerCommand("kiwi.search", () => find(made)),
    vscode.commands.registerCommand("kiwi.showLog", () => log.show(true)),
    vscode.commands.registerCommand("kiwi.install", () => help(made)),
  ];
}

function events(made: Workspace): vscode.Disposable[] {
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
    }),
    vscode.workspace.onDidChangeConfiguration((event) => event.affectsConfiguration("kiwi.path") && made.retry()),
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

function settings(scope?: vscode.Uri): vscode.WorkspaceConfiguration {
  return vscode.workspace.getConfiguration("kiwi", scope);
}

function isOnDisk(folder: vscode.WorkspaceFolder): boolean {
  return folder.uri.scheme === "file";
}
