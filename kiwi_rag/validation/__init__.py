"""The gate: nothing enters an index that it did not admit. `manager` holds the procedure, one module a check beside it."""
