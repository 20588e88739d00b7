/**
 * Offers `kiwi mcp` to VS Code's agents, one server a folder.
 *
 * VS Code has the interface since 1.101; before that nothing is offered. It is declared here, as far as it is used, so
 * that the extension is compiled for the older versions that it still supports.
 */

import * as vscode from "vscode";

import { find } from "./program";

/** The name in package.json, `contributes.mcpServerDefinitionProviders`. */
export const PROVIDER = "kiwi";

interface Definition {
  cwd?: vscode.Uri;
}

interface Provider {
  readonly onDidChangeMcpServerDefinitions: vscode.Event<void>;
  provideMcpServerDefinitions(): Definition[];
}

interface Api {
  readonly lm?: { registerMcpServerDefinitionProvider?(id: string, provider: Provider): vscode.Disposable };
  readonly McpStdioServerDefinition?: new (
    label: string,
    command: string,
    args: string[],
    env: Record<string, string>,
    version: string,
  ) => Definition;
}

/**
 * Register the servers of the open folders; `changed` is to be fired when they may be others.
 *
 * Where the program is not found none is offered: the status bar says how to install it.
 */
export function offerServers(
  name: () => string,
  environment: () => Record<string, string>,
  folders: () => readonly vscode.WorkspaceFolder[],
  version: string,
  changed: vscode.EventEmitter<void>,
): vscode.Disposable[] {
  const { lm, McpStdioServerDefinition: Server } = vscode as Api;
  if (!lm?.registerMcpServerDefinitionProvider || !Server) {
    return [];
  }
  const provider: Provider = {
    onDidChangeMcpServerDefinitions: changed.event,
    provideMcpServerDefinitions: () => {
      const program = find(name(), process.env);
      const open = program === undefined ? [] : folders();
      return open.map((folder) => {
        const server = new Server(`Kiwi: ${folder.name}`, program ?? "", ["mcp"], environment(), version);
        server.cwd = folder.uri;
        return server;
      });
    },
  };
  return [lm.registerMcpServerDefinitionProvider(PROVIDER, provider)];
}
