"""Where admitted items are kept and found again: one protocol, one module a backend."""
