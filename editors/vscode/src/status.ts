/** What the status bar says of the open folders. */

import type { FailedFile } from "./replies";

export type Phase = "unknown" | "unindexed" | "indexing" | "ready" | "failed" | "missing";

export interface Standing {
  readonly name: string;
  /** What paths of hits and of failed files are below; empty until it is known. */
  readonly root: string;
  readonly phase: Phase;
  readonly passages: number;
  readonly documents: number;
  readonly failed: readonly FailedFile[];
  /** What went wrong and what mends it. */
  readonly message: string;
  readonly hint: string;
}

export interface Shown {
  readonly text: string;
  readonly tooltip: string;
  readonly command: string;
  readonly severity: "none" | "warning" | "error";
}

export const NEW: Omit<Standing, "name"> = {
  root: "",
  phase: "unknown",
  passages: 0,
  documents: 0,
  failed: [],
  message: "",
  hint: "",
};

/** Return what is shown, or undefined where no folder is open. */
export function shown(folders: readonly Standing[]): Shown | undefined {
  if (!folders.length) {
    return undefined;
  }
  const any = (phase: Phase): boolean => folders.some((folder) => folder.phase === phase);
  const tooltip = folders.map(line).join("\n");
  const count = folders.reduce((sum, folder) => sum + folder.passages, 0).toLocaleString("en");
  const label = `Kiwi: ${count} passages`;
  if (any("missing")) {
    return { text: "$(warning) Kiwi not found", tooltip, command: "kiwi.install", severity: "warning" };
  }
  if (any("indexing")) {
    return { text: `$(sync~spin) ${label}`, tooltip, command: "kiwi.showLog", severity: "none" };
  }
  if (any("failed")) {
    return { text: "$(error) Kiwi failed", tooltip, command: "kiwi.showLog", severity: "error" };
  }
  if (folders.some((folder) => folder.failed.length)) {
    return { text: `$(warning) ${label}`, tooltip, command: "kiwi.showLog", severity: "warning" };
  }
  if (any("ready")) {
    return { text: `$(search) ${label}`, tooltip, command: "kiwi.search", severity: "none" };
  }
  if (any("unindexed")) {
    return { text: "$(circle-slash) Kiwi: not indexed", tooltip, command: "kiwi.index", severity: "none" };
  }
  return { text: "$(search) Kiwi", tooltip, command: "kiwi.showLog", severity: "none" };
}

function line(folder: Standing): string {
  const told = [folder.message, folder.hint].filter(Boolean).join(" → ");
  switch (folder.phase) {
    case "unknown":
      return `${folder.name}: not looked at yet`;
    case "unindexed":
      return `${folder.name}: no index yet; click to make one${told && `. ${told}`}`;
    case "indexing":
      return `${folder.name}: indexing…`;
    case "failed":
    case "missing":
      return `${folder.name}: ${told}`;
    case "ready":
      return [`${folder.name}: ${counts(folder)}`, ...folder.failed.slice(0, 5).map(failure)].join("\n");
  }
}

function counts({ passages, documents, failed, message }: Standing): string {
  const text = `${passages.toLocaleString("en")} passages of ${documents.toLocaleString("en")} documents`;
  return [text, failed.length ? `${failed.length} could not be indexed` : "", message].filter(Boolean).join("; ");
}

function failure({ path, message, hint }: FailedFile): string {
  return `  ${path}: ${[message, hint].filter(Boolean).join(" → ")}`;
}
