"""The gate: only what it admitted is indexed.

`manager` holds the numbered procedure, the other modules its checks, the policies and the audit log's hash chain.
"""
