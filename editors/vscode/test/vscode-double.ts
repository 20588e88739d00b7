/**
 * As much of VS Code's API as the extension uses, by hand: the editor itself cannot be started in these tests.
 *
 * Importing this module makes `import "vscode"` give the double. What a user would do are its methods, and what a user
 * would see are its fields.
 */

import Module from "node:module";
import * as path from "node:path";

type Listener<T> = (event: T) => unknown;

class Event<T> {
  readonly listeners = new Set<Listener<T>>();
  readonly on = (listener: Listener<T>): { dispose(): void } => {
    this.listeners.add(listener);
    return { dispose: () => this.listeners.delete(listener) };
  };
  fire(event: T): void {
    this.listeners.forEach((listener) => listener(event));
  }
}

export interface Uri {
  readonly scheme: string;
  readonly fsPath: string;
}

export interface Folder {
  readonly uri: Uri;
  readonly name: string;
  readonly index: number;
}

/** A server as VS Code would start it. */
export class Server {
  cwd: Uri | undefined;
  constructor(
    readonly label: string,
    readonly command: string,
    readonly args: readonly string[],
    readonly env: Readonly<Record<string, string>>,
    readonly version: string,
  ) {}
}

export interface ServerProvider {
  readonly onDidChangeMcpServerDefinitions: (listener: () => void) => unknown;
  provideMcpServerDefinitions(): readonly Server[];
}

export const file = (fsPath: string): Uri => ({ scheme: "file", fsPath });

export class Editor {
  isTrusted = true;
  folders: Folder[] = [];
  settings: Record<string, unknown> = {};
  readonly commands = new Map<string, (...args: unknown[]) => unknown>();
  readonly executed: unknown[][] = [];
  readonly bar = { text: "", tooltip: "", command: "", visible: false, backgroundColor: undefined as { id: string } | undefined };
  readonly log: string[] = [];
  readonly messages: string[] = [];
  readonly opened: { file: string; line: number }[] = [];
  picks: readonly { label: string; description: string; detail: string }[] = [];
  /** What the user types, chooses from a list, and clicks in a message. */
  types: string | undefined;
  picksAt = 0;
  clicks: string | undefined;
  cancelsAfter: number | undefined;
  logShown = false;

  /** Name → what was registered to offer MCP servers; undefined in a VS Code from before it could be. */
  servers: Map<string, ServerProvider> | undefined = new Map();

  readonly granted = new Event<void>();
  readonly saved = new Event<{ uri: Uri }>();
  readonly created = new Event<{ files: readonly Uri[] }>();
  readonly deleted = new Event<{ files: readonly Uri[] }>();
  readonly renamed = new Event<{ files: readonly { oldUri: Uri; newUri: Uri }[] }>();
  readonly foldersChanged = new Event<{ added: readonly Folder[]; removed: readonly Folder[] }>();
  readonly configured = new Event<{ affectsConfiguration(name: string): boolean }>();

  openFolder(fsPath: string): void {
    const added = { uri: file(fsPath), name: path.basename(fsPath), index: this.folders.length };
    this.folders.push(added);
    this.foldersChanged.fire({ added: [added], removed: [] });
  }

  closeFolder(fsPath: string): void {
    const removed = this.folders.filter((folder) => folder.uri.fsPath === fsPath);
    this.folders = this.folders.filter((folder) => !removed.includes(folder));
    this.foldersChanged.fire({ added: [], removed });
  }

  save(fsPath: string, scheme = "file"): void {
    this.saved.fire({ uri: { scheme, fsPath } });
  }

  async runs(command: string): Promise<void> {
    await this.commands.get(command)?.();
  }

  listening(): number {
    const events = [this.saved, this.created, this.deleted, this.renamed, this.foldersChanged, this.configured];
    return events.reduce((sum, event) => sum + event.listeners.size, 0);
  }

  private folderOf(uri: Uri): Folder | undefined {
    const holding = this.folders.filter((folder) => uri.fsPath.startsWith(folder.uri.fsPath + path.sep));
    return holding.sort((one, other) => other.uri.fsPath.length - one.uri.fsPath.length)[0];
  }

  /** The module's members, named as VS Code names them. */
  api(): object {
    const editor = this;
    const message = async (text: string): Promise<string | undefined> => (this.messages.push(text), this.clicks);
    const channel = { info: (line: string) => this.log.push(line), show: () => (this.logShown = true), dispose: () => {} };
    return {
      workspace: {
        get isTrusted() {
          return editor.isTrusted;
        },
        get workspaceFolders() {
          return editor.folders.length ? editor.folders : undefined;
        },
        getWorkspaceFolder: (uri: Uri) => this.folderOf(uri),
        getConfiguration: (section: string) => ({
          get: (name: string, otherwise: unknown) => this.settings[`${section}.${name}`] ?? otherwise,
        }),
        onDidGrantWorkspaceTrust: this.granted.on,
        onDidSaveTextDocument: this.saved.on,
        onDidCreateFiles: this.created.on,
        onDidDeleteFiles: this.deleted.on,
        onDidRenameFiles: this.renamed.on,
        onDidChangeWorkspaceFolders: this.foldersChanged.on,
        onDidChangeConfiguration: this.configured.on,
      },
      window: {
        createOutputChannel: () => channel,
        createStatusBarItem: () =>
          Object.assign(this.bar, {
            show: () => (this.bar.visible = true),
            hide: () => (this.bar.visible = false),
            dispose: () => (this.bar.visible = false),
          }),
        showInputBox: async () => this.types,
        showQuickPick: async (picks: Editor["picks"]) => ((this.picks = picks), picks[this.picksAt]),
        showInformationMessage: message,
        showWarningMessage: message,
        showErrorMessage: message,
        showTextDocument: async (uri: Uri, { selection }: { selection: { line: number } }) =>
          this.opened.push({ file: uri.fsPath, line: selection.line + 1 }),
        withProgress: async (_: object, task: (progress: object, token: object) => Promise<unknown>) =>
          await task({}, {
            onCancellationRequested: (listener: () => void) =>
              this.cancelsAfter === undefined ? undefined : setTimeout(listener, this.cancelsAfter),
          }),
      },
      commands: {
        registerCommand: (name: string, handler: () => unknown) => {
          this.commands.set(name, handler);
          return { dispose: () => this.commands.delete(name) };
        },
        executeCommand: async (...args: unknown[]) => this.executed.push(args),
      },
      lm: this.servers && {
        registerMcpServerDefinitionProvider: (id: string, provider: ServerProvider) => {
          this.servers?.set(id, provider);
          return { dispose: () => this.servers?.delete(id) };
        },
      },
      McpStdioServerDefinition: this.servers && Server,
      EventEmitter: class extends Event<void> {
        readonly event = this.on;
        dispose(): void {
          this.listeners.clear();
        }
      },
      Uri: { file },
      Range: class {
        constructor(readonly line: number) {}
      },
      ThemeColor: class {
        constructor(readonly id: string) {}
      },
      StatusBarAlignment: { Left: 1 },
      ProgressLocation: { Notification: 15 },
    };
  }
}

// Marked as a module of ours, so that importing it makes no copy: each test has another editor.
const api: object = { __esModule: true };

/** Give the extension an editor of its own. */
export function newEditor(editor = new Editor()): Editor {
  return (Object.assign(api, editor.api()), editor);
}

type Load = (request: string, ...rest: unknown[]) => unknown;
const modules = Module as unknown as { _load: Load };
const load = modules._load;
modules._load = (request, ...rest) => (request === "vscode" ? api : load(request, ...rest));
