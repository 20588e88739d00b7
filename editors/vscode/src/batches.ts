/** Collects what changed, folder by folder, and hands it over in batches: one at a time, never two. */

export interface Batch {
  readonly folder: string;
  /** Paths below the folder; undefined: look at everything. */
  readonly paths: readonly string[] | undefined;
  /** Whether an index is to be made where there is none. */
  readonly force: boolean;
}

interface Pending {
  paths: Set<string> | undefined;
  force: boolean;
}

// Beyond these a look at everything is cheaper, and a command line on Windows holds 32,767 characters.
const MAX_PATHS = 200;
const MAX_CHARACTERS = 20_000;

export class Batches {
  private readonly pending = new Map<string, Pending>();
  private timer: NodeJS.Timeout | undefined;
  private running: Promise<void> | undefined;
  private ended = false;

  /** `work` must not fail; `wait` says how many milliseconds changes are collected for. */
  constructor(
    private readonly work: (batch: Batch) => Promise<void>,
    private readonly wait: () => number,
  ) {}

  /** A file changed. */
  add(folder: string, file: string): void {
    const pending = this.of(folder, new Set());
    pending.paths?.add(file);
    this.schedule(this.wait());
  }

  /** Anything may have changed. */
  addAll(folder: string): void {
    this.of(folder, undefined).paths = undefined;
    this.schedule(this.wait());
  }

  /** Look at everything at once; `force` makes an index where there is none. */
  addNow(folder: string, force: boolean): void {
    const pending = this.of(folder, undefined);
    pending.paths = undefined;
    pending.force ||= force;
    this.schedule(0);
  }

  /** A folder was closed. */
  drop(folder: string): void {
    this.pending.delete(folder);
  }

  /** Return once nothing is under way; what waits for its time goes on waiting. */
  async idle(): Promise<void> {
    await this.running;
  }

  /** Take nothing more. */
  dispose(): void {
    this.ended = true;
    clearTimeout(this.timer);
    this.pending.clear();
  }

  private of(folder: string, paths: Set<string> | undefined): Pending {
    const pending = this.pending.get(folder) ?? { paths, force: false };
    this.pending.set(folder, pending);
    return pending;
  }

  /** A timer that runs is not set back, or somebody who saves all the time would wait for ever. */
  private schedule(after: number): void {
    if (this.ended || this.timer || this.running) {
      return;
    }
    this.timer = setTimeout(() => {
      this.timer = undefined;
      this.running = this.drain().finally(() => this.rest());
    }, after);
  }

  /** Between the last look at what waits and this, something may have come. */
  private rest(): void {
    this.running = undefined;
    if (this.pending.size) {
      this.schedule(0);
    }
  }

  private async drain(): Promise<void> {
    for (let next = this.next(); next && !this.ended; next = this.next()) {
      await this.work(next);
    }
  }

  private next(): Batch | undefined {
    const [first] = this.pending;
    if (!first) {
      return undefined;
    }
    const [folder, { paths, force }] = first;
    this.pending.delete(folder);
    const files = paths && [...paths].sort();
    const isMany = files && (files.length > MAX_PATHS || files.join("").length > MAX_CHARACTERS);
    return { folder, paths: isMany ? undefined : files, force };
  }
}
