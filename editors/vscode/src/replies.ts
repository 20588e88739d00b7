/** What `kiwi --json workspace …` answers, read with care: another version may say more, or less. */

import * as path from "node:path";

export interface Stats {
  /** The folder that paths are below: the open one, or one above it that is the project's. */
  readonly root: string;
  readonly documents: number;
  readonly passages: number;
  /** Whether there is an index, finished or not. */
  readonly indexed: boolean;
}

export interface FailedFile {
  readonly path: string;
  readonly message: string;
  readonly hint: string;
}

export interface Hit {
  /** Absolute, and below the workspace's root. */
  readonly file: string;
  /** As it was found: below the root, with slashes. */
  readonly path: string;
  readonly startLine: number;
  readonly endLine: number;
  readonly heading: string;
  readonly text: string;
  readonly score: number;
}

type Fields = Record<string, unknown>;

export function stats(data: unknown): Stats {
  const fields = record(data);
  const documents = number(fields["documents"]);
  const indexed = documents > 0 || fields["complete"] === true || text(fields["run"]) !== "";
  return { root: text(fields["root"]), documents, passages: number(fields["passages"]), indexed };
}

export function failedFiles(data: unknown): readonly FailedFile[] {
  return list(record(data)["failed"]).map((one) => ({
    path: text(one["path"]),
    message: text(one["message"]),
    hint: text(one["hint"]),
  }));
}

/** Return the hits of a search, whose paths are below `root`; those that lead out of it are left out. */
export function hits(data: unknown, root: string): readonly Hit[] {
  return list(record(data)["hits"]).flatMap((one) => {
    const file = path.resolve(root, text(one["path"]));
    const startLine = Math.max(1, number(one["start_line"]));
    const hit = {
      file,
      path: text(one["path"]),
      startLine,
      endLine: Math.max(startLine, number(one["end_line"])),
      heading: Array.isArray(one["heading"]) ? one["heading"].map(text).join(" › ") : text(one["heading"]),
      text: text(one["text"]),
      score: number(one["score"]),
    };
    return below(root, file) === undefined ? [] : [hit];
  });
}

/** Return a file's path below a folder, with slashes; undefined where it is not below it. */
export function below(folder: string, file: string): string | undefined {
  const relative = path.relative(folder, file);
  const isOutside = !relative || path.isAbsolute(relative) || relative.split(path.sep)[0] === "..";
  return isOutside ? undefined : relative.split(path.sep).join("/");
}

function record(value: unknown): Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Fields) : {};
}

function list(value: unknown): readonly Fields[] {
  return Array.isArray(value) ? value.map(record) : [];
}

function number(value: unknown): number {
  return typeof value === "number" && Number.isFinite(value) ? value : 0;
}

function text(value: unknown): string {
  return typeof value === "string" ? value : "";
}
