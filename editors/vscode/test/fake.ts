/** A `kiwi` that is a real program: it writes down how it was called, and answers as it was told to. */

import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, realpathSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import * as path from "node:path";

export interface Call {
  readonly args: readonly string[];
  readonly cwd: string;
}

export interface Reply {
  readonly exit?: number;
  readonly out?: unknown;
  readonly err?: string;
  /** Milliseconds before it answers. */
  readonly wait?: number;
}

const END = "\x1e";
// A shell starts ten times as fast as Node. What it waits by holds none of its streams, and ends when it is told to.
const PROGRAM = `#!/bin/sh
dir=$(dirname "$0")
[ "$3" != index ] || mkdir "$dir/running" 2>/dev/null || : >"$dir/overlap"
reply="$dir/$3.$(cat "$dir/$3")"
if [ -e "$reply.wait" ]; then
  sleep "$(cat "$reply.wait")" </dev/null >/dev/null 2>&1 &
  trap 'kill $!; exit 143' TERM
  wait $!
fi
[ "$3" != index ] || rmdir "$dir/running"
printf '%s\\0' "$(pwd)" "$@" '${END}' >>"$dir/calls"
cat "$reply.err" >&2
cat "$reply.out"
exit "$(cat "$reply.exit")"
`;

export class Fake {
  readonly root = realpathSync(mkdtempSync(path.join(tmpdir(), "kiwi-vscode-")));
  readonly bin = path.join(this.root, "bin");
  readonly program = path.join(this.bin, "kiwi");
  private replies = 0;

  constructor() {
    mkdirSync(this.bin);
    this.install();
    this.says("stats", { out: { documents: 12, passages: 3412, complete: true } });
    this.says("index", { out: { indexed: [], unchanged: 12, failed: [] } });
  }

  install(): void {
    writeFileSync(this.program, PROGRAM);
    chmodSync(this.program, 0o755);
  }

  /** Say what a verb of `kiwi workspace` answers from now on; who is answering just now goes on as before. */
  says(verb: string, { exit = 0, out = {}, err = "", wait = 0 }: Reply): void {
    const number = `${++this.replies}`;
    const texts = { exit: `${exit}`, out: typeof out === "string" ? out : JSON.stringify(out, null, 2), err };
    for (const [kind, text] of Object.entries(wait ? { ...texts, wait: `${wait / 1000}` } : texts)) {
      writeFileSync(path.join(this.bin, `${verb}.${number}.${kind}`), text);
    }
    writeFileSync(path.join(this.bin, `${verb}.new`), number);
    renameSync(path.join(this.bin, `${verb}.new`), path.join(this.bin, verb));
  }

  /** Write down these variables at each call, for `echoed`. */
  echoes(...names: string[]): void {
    const print = `printf '%s\\n' "${names.map((name) => `$${name}`).join("|")}" >>"$dir/echoed"\n`;
    writeFileSync(this.program, PROGRAM.replace("[ ", () => `${print}[ `));
  }

  get echoed(): readonly (readonly string[])[] {
    const lines = readFileSync(path.join(this.bin, "echoed"), "utf8").trimEnd().split("\n");
    return lines.map((line) => line.split("|"));
  }

  folder(name: string, ...files: string[]): string {
    const folder = path.join(this.root, name);
    mkdirSync(folder, { recursive: true });
    for (const file of files) {
      mkdirSync(path.dirname(path.join(folder, file)), { recursive: true });
      writeFileSync(path.join(folder, file), `# ${file}\n`);
    }
    return folder;
  }

  get calls(): readonly Call[] {
    const file = path.join(this.bin, "calls");
    const records = existsSync(file) ? readFileSync(file, "utf8").split(`${END}\0`).slice(0, -1) : [];
    return records.map((record) => {
      const [cwd = "", ...args] = record.split("\0").slice(0, -1);
      return { cwd, args };
    });
  }

  /** Whether two indexed at once. */
  get overlapped(): boolean {
    return existsSync(path.join(this.bin, "overlap"));
  }

  /** Return the arguments of the calls of one verb, without those that all have. */
  argsOf(verb: string): readonly (readonly string[])[] {
    return this.calls.filter(({ args }) => args[2] === verb).map(({ args }) => args.slice(3));
  }

  remove(): void {
    rmSync(this.root, { recursive: true, force: true });
  }
}

/** Return once something is so; fail after five seconds. */
export async function until(isSo: () => boolean, what: string): Promise<void> {
  const end = Date.now() + 5_000;
  while (!isSo()) {
    if (Date.now() > end) {
      throw new Error(`it never came about: ${what}`);
    }
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

export const pause = (milliseconds: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, milliseconds));
