"""The state that a client pinned of each registry it used, and the checks of the registry's answers against it."""
