/** The command that searches: a query, a list of hits, the file at its line. */

import * as vscode from "vscode";

import { Failure, STOPPED } from "./program";
import type { Hit } from "./replies";
import type { Workspace } from "./workspace";

interface Choice extends vscode.QuickPickItem {
  readonly hit: Hit;
}

export async function find(workspace: Workspace): Promise<void> {
  const query = await vscode.window.showInputBox({
    title: "Kiwi: Search Workspace",
    prompt: "What are you looking for, in plain words?",
    placeHolder: "which services call the check-in service",
  });
  if (!query?.trim()) {
    return;
  }
  const choices = await asked(workspace, query);
  if (!choices) {
    return;
  }
  if (!choices.length) {
    void vscode.window.showInformationMessage(`Kiwi found nothing for “${query}”.`);
    return;
  }
  const options = { title: `Kiwi: ${query}`, matchOnDescription: true, matchOnDetail: true };
  const chosen = await vscode.window.showQuickPick(choices, options);
  if (chosen) {
    await show(chosen.hit);
  }
}

/** Ask every folder; undefined where the user stopped it, or none could answer. */
async function asked(workspace: Workspace, query: string): Promise<readonly Choice[] | undefined> {
  const location = vscode.ProgressLocation.Notification;
  return await vscode.window.withProgress({ location, title: "Kiwi searches…", cancellable: true }, async (_, token) => {
    const stop = new AbortController();
    token.onCancellationRequested(() => stop.abort());
    const folders = (vscode.workspace.workspaceFolders ?? []).filter(({ uri }) => uri.scheme === "file");
    const found: Choice[] = [];
    let failure: Failure | undefined;
    for (const folder of folders) {
      try {
        const limit = vscode.workspace.getConfiguration("kiwi", folder.uri).get("limit", 20);
        const hits = await workspace.search(folder.uri.fsPath, query, limit, stop.signal);
        const prefix = folders.length > 1 ? `${folder.name}/` : "";
        found.push(...hits.map((hit) => choice(hit, prefix)));
      } catch (error) {
        failure = error as Failure;
      }
    }
    if (failure && failure.code !== STOPPED) {
      void vscode.window.showErrorMessage([failure.message, failure.hint].filter(Boolean).join(" → "));
    }
    if (folders.length > 1) {
      found.sort((one, other) => other.hit.score - one.hit.score);
    }
    return failure && !found.length ? undefined : found;
  });
}

function choice(hit: Hit, prefix: string): Choice {
  return {
    label: plain(`${prefix}${hit.path}:${hit.startLine}`),
    description: plain(hit.heading),
    detail: plain(hit.text.replace(/\s+/g, " ").trim().slice(0, 200)),
    hit,
  };
}

/** A list shows `$(name)` as an icon; here it is what a file says. */
function plain(text: string): string {
  return text.replaceAll("$(", "\\$(");
}

async function show(hit: Hit): Promise<void> {
  const selection = new vscode.Range(hit.startLine - 1, 0, hit.startLine - 1, 0);
  try {
    await vscode.window.showTextDocument(vscode.Uri.file(hit.file), { selection, preview: true });
  } catch (error) {
    void vscode.window.showErrorMessage(`${hit.path} cannot be opened: ${(error as Error).message}`);
  }
}
