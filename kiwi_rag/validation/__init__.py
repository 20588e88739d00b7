"""The gate: nothing enters an index that it did not admit.

`manager` holds the numbered procedure; beside it stands one module a check.
"""
