/** Keeps the indexes of the open folders fresh, and knows how each stands. */

import { statSync } from "node:fs";
import { stat } from "node:fs/promises";
import { homedir } from "node:os";
import * as path from "node:path";

import { type Batch, Batches } from "./batches";
import { Failure, MISSING, type Run, STOPPED } from "./program";
import { below, type FailedFile, failedFiles, type Hit, hits, stats } from "./replies";
import { NEW, type Standing } from "./status";

export interface Settings {
  /** Milliseconds in which changes are collected. */
  readonly debounce: number;
}

const BUSY = "busy";
const BUSY_WAIT = 3_000;
const BUSY_TIMES = 5;
// What `kiwi workspace stats` fails with where there is nothing to count yet.
const NO_INDEX = new Set(["not-found", "usage", "config"]);

export class Workspace {
  private readonly folders = new Map<string, Standing>();
  private readonly busy = new Map<string, number>();
  private readonly stopping = new AbortController();
  private readonly batches: Batches;

  constructor(
    private readonly run: Run,
    private readonly changed: (folders: readonly Standing[]) => void,
    settings: () => Settings,
    private readonly busyWait = BUSY_WAIT,
  ) {
    this.batches = new Batches((batch) => this.work(batch), () => settings().debounce);
  }

  get standings(): readonly Standing[] {
    return [...this.folders.values()];
  }

  /** Open a folder, and index it: if it has an index, always, or not at all. */
  open(folder: string, name: string, index: "always" | "indexed" | "never"): void {
    this.folders.set(folder, { name, ...NEW });
    this.tell();
    if (index === "never") {
      void this.count(folder);
    } else {
      this.batches.addNow(folder, index === "always");
    }
  }

  close(folder: string): void {
    this.folders.delete(folder);
    this.batches.drop(folder);
    this.tell();
  }

  /** Index a folder whether it has an index or not. */
  index(folder: string): void {
    this.batches.addNow(folder, true);
  }

  /** A file or folder was written, or came into being. */
  async written(folder: string, file: string): Promise<void> {
    const relative = below(folder, file);
    if (relative === undefined || relative.split("/")[0] === ".git") {
      return;
    }
    const isFolder = await stat(file).then((facts) => facts.isDirectory(), () => true);
    if (isFolder) {
      this.batches.addAll(folder);
    } else {
      this.batches.add(folder, relative);
    }
  }

  /** Something is gone; whether it was a file or a folder nobody knows any more. */
  gone(folder: string, file: string): void {
    if (below(folder, file) !== undefined) {
      this.batches.addAll(folder);
    }
  }

  /** Ask in a folder for what a search finds. */
  async search(folder: string, query: string, limit: number, stop: AbortSignal): Promise<readonly Hit[]> {
    const either = AbortSignal.any([stop, this.stopping.signal]);
    const { data } = await this.run(["workspace", "search", `--limit=${limit}`, "--", query], folder, either);
    return hits(data, this.folders.get(folder)?.root || folder);
  }

  /** Look anew at folders that had no program, or failed. */
  retry(): void {
    for (const [folder, { phase }] of this.folders) {
      if (phase === "missing" || phase === "failed") {
        this.batches.addNow(folder, false);
      }
    }
  }

  async idle(): Promise<void> {
    await this.batches.idle();
  }

  /** End what runs, and take nothing more. */
  dispose(): void {
    this.batches.dispose();
    this.stopping.abort();
    this.folders.clear();
  }

  private async work(batch: Batch): Promise<void> {
    const before = this.folders.get(batch.folder);
    if (!before || (!batch.force && before.phase !== "ready" && !(await this.count(batch.folder)))) {
      return;
    }
    this.set(batch.folder, { phase: "indexing" });
    try {
      const files = (batch.paths ?? []).map((file) => `--file=${file}`);
      const { data } = await this.run(["workspace", "index", ...files], batch.folder, this.stopping.signal);
      this.busy.delete(batch.folder);
      await this.count(batch.folder, stillFailed(before, batch, failedFiles(data)));
    } catch (error) {
      await this.failed(batch, error);
    }
  }

  /** Ask for the counts, and return whether there is an index. */
  private async count(folder: string, failed: Standing["failed"] = []): Promise<boolean> {
    if (!isProject(folder)) {
      this.set(folder, { ...NEW, phase: "unindexed" });
      return false;
    }
    try {
      const { data } = await this.run(["workspace", "stats"], folder, this.stopping.signal);
      const { root, indexed, documents, passages } = stats(data);
      const phase = indexed ? "ready" : "unindexed";
      this.set(folder, { root, phase, documents, passages, failed, message: "", hint: "" });
      return indexed;
    } catch (error) {
      const { code, message, hint } = error as Failure;
      const phase = code === MISSING ? "missing" : NO_INDEX.has(code) ? "unindexed" : "failed";
      this.set(folder, { phase, message, hint, failed: [] });
      return false;
    }
  }

  private async failed(batch: Batch, error: unknown): Promise<void> {
    const { code, message, hint } = error as Failure;
    if (code === BUSY) {
      await this.count(batch.folder);
      this.tryAgain(batch, message);
    } else if (code !== STOPPED) {
      this.set(batch.folder, { phase: code === MISSING ? "missing" : "failed", message, hint });
    }
  }

  /** Another process writes: look at what it may not have seen, less and less often. */
  private tryAgain(batch: Batch, message: string): void {
    const times = (this.busy.get(batch.folder) ?? 0) + 1;
    this.busy.set(batch.folder, times);
    this.set(batch.folder, { message });
    if (times <= BUSY_TIMES) {
      const again = (): void => void (this.folders.has(batch.folder) && this.batches.addNow(batch.folder, batch.force));
      setTimeout(again, this.busyWait * 2 ** (times - 1)).unref();
    }
  }

  private set(folder: string, news: Partial<Standing>): void {
    const before = this.folders.get(folder);
    if (before) {
      this.folders.set(folder, { ...before, ...news });
      this.tell();
    }
  }

  private tell(): void {
    this.changed(this.standings);
  }
}

/** Return the files that could not be indexed: those of this run, and of earlier ones those that it did not look at. */
function stillFailed(before: Standing, { folder, paths }: Batch, failed: Standing["failed"]): Standing["failed"] {
  const looked = new Set(paths?.map((file) => path.resolve(folder, file)));
  const isOpen = (one: FailedFile): boolean => !looked.has(path.resolve(before.root || folder, one.path));
  return paths ? [...before.failed.filter(isOpen), ...failed] : failed;
}

/** Return whether a folder, or one above it, is a project of Kiwi's; `~/.ai` is the user's own and makes none. */
function isProject(folder: string): boolean {
  const above = path.dirname(folder);
  const isHere = folder !== homedir() && statSync(path.join(folder, ".ai"), { throwIfNoEntry: false })?.isDirectory();
  return isHere || (above !== folder && isProject(above));
}
