"""A repository's documents: walked, admitted, indexed when they change, and found again.

`indexing.index` brings an index up to its files, `watching.watch` keeps it there, `searching` asks it.
"""

from __future__ import annotations
