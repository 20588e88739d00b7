"""HTTP: the local service, and the MCP server on a port of its own."""
