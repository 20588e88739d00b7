/** Runs `kiwi`: found once on the PATH, started with an array of arguments and no shell, answered in JSON. */

import { spawn } from "node:child_process";
import { accessSync, constants, statSync } from "node:fs";
import * as path from "node:path";

/** What went wrong, as `kiwi --json` says it. */
export class Failure extends Error {
  constructor(
    readonly code: string,
    message: string,
    readonly hint = "",
    readonly exit: number | null = null,
  ) {
    super(message);
  }
}

export const MISSING = "missing";
export const STOPPED = "stopped";

export interface Answer {
  /** What stdout said. */
  readonly data: unknown;
  /** Whether some of it could not be done (exit code 3). */
  readonly partly: boolean;
}

/** Runs `kiwi --json` with arguments in a folder; `stop` ends it. */
export type Run = (args: readonly string[], folder: string, stop?: AbortSignal) => Promise<Answer>;

const MAX_OUTPUT = 64 << 20;
const NOTHING: Answer = { data: {}, partly: false };

/**
 * Return the program's absolute path, or undefined.
 *
 * A name is looked up here, because Windows would look into the workspace's folder first. For the same reason folders
 * of the PATH that are not absolute are passed over, and so is a `name` with slashes that is not.
 */
export function find(name: string, env: NodeJS.ProcessEnv, platform = process.platform): string | undefined {
  const names = platform === "win32" && !path.extname(name) ? [`${name}.exe`, `${name}.com`] : [name];
  if (path.isAbsolute(name)) {
    return names.find(isProgram);
  }
  if (path.basename(name) !== name) {
    return undefined;
  }
  const searched = env["PATH"] ?? env["Path"] ?? "";
  const folders = searched.split(path.delimiter).filter((folder) => path.isAbsolute(folder));
  return folders.flatMap((folder) => names.map((one) => path.join(folder, one))).find(isProgram);
}

/**
 * Return what runs the program that `name` gives at the time; `log` is told each call and what it says on stderr.
 *
 * `environment` are variables that are set for it, beside those of this process.
 */
export function runner(
  name: () => string,
  log: (line: string) => void,
  environment: () => Readonly<Record<string, string>> = () => ({}),
): Run {
  return async (args, folder, stop) => {
    const program = find(name(), process.env);
    if (program === undefined) {
      throw new Failure(MISSING, `There is no program ${JSON.stringify(name())}.`, "Install Kiwi, or set kiwi.path.");
    }
    return await started(program, ["--json", ...args], folder, environment(), log, stop);
  };
}

function started(
  program: string,
  args: readonly string[],
  folder: string,
  environment: Readonly<Record<string, string>>,
  log: (line: string) => void,
  stop?: AbortSignal,
): Promise<Answer> {
  if (stop?.aborted) {
    return Promise.reject(new Failure(STOPPED, "Stopped."));
  }
  log(`${folder} $ kiwi ${args.join(" ")}`);
  return new Promise((resolve, reject) => {
    const env = { ...process.env, ...environment, NO_COLOR: "1", PYTHONUTF8: "1" };
    const child = spawn(program, args, { cwd: folder, env, shell: false, windowsHide: true });
    const end = (): boolean => child.kill();
    stop?.addEventListener("abort", end, { once: true });
    child.stdin.end();
    const [out, err]: [string[], string[]] = [[], []];
    let size = 0;
    for (const [stream, kept] of [[child.stdout, out], [child.stderr, err]] as const) {
      stream.setEncoding("utf8").on("data", (text: string) => {
        size += text.length;
        kept.push(text);
        if (size > MAX_OUTPUT) {
          end();
        }
        if (kept === err && text.trim()) {
          log(text.trimEnd());
        }
      });
    }
    child.on("error", (error) => reject(new Failure("start", `${program} cannot be started: ${error.message}`)));
    child.on("close", (exit) => {
      stop?.removeEventListener("abort", end);
      try {
        resolve(answer(exit, out.join(""), err.join(""), stop?.aborted ?? false));
      } catch (error) {
        reject(error);
      }
    });
  });
}

/** Read what `kiwi` left behind: JSON on stdout where it went well or partly well, else an error on stderr. */
export function answer(exit: number | null, stdout: string, stderr: string, stopped = false): Answer {
  if (stopped) {
    throw new Failure(STOPPED, "Stopped.");
  }
  if (exit !== 0 && exit !== 3) {
    throw failureOf(stderr, exit);
  }
  if (!stdout.trim()) {
    return NOTHING;
  }
  try {
    return { data: JSON.parse(stdout), partly: exit === 3 };
  } catch {
    throw new Failure("answer", "kiwi did not answer in JSON.", "Is kiwi.path Kiwi's command? See the log.", exit);
  }
}

function failureOf(stderr: string, exit: number | null): Failure {
  const begin = stderr.search(/^\{\s*"error"/m);
  try {
    const { error } = JSON.parse(stderr.slice(begin)) as { error: Record<string, unknown> };
    return new Failure(String(error["code"]), String(error["message"]), String(error["hint"] ?? ""), exit);
  } catch {
    const last = stderr.trim().split("\n").at(-1) ?? "";
    return new Failure("exit", last || `kiwi ended with ${exit ?? "a signal"}.`, "See the log.", exit);
  }
}

function isProgram(file: string): boolean {
  try {
    accessSync(file, constants.X_OK);
    return statSync(file).isFile();
  } catch {
    return false;
  }
}
