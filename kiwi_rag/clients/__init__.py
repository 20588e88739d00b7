"""Agents' own configuration files: what `kiwi setup` puts into them, and takes out again.

`table` says as data which clients there are and where each keeps what. One module a format edits text: `jsonc`, `toml`
and `marked` (instructions between marked lines). `files` reads, keeps and writes. `plan` puts them together: a plan is
what would change, and is carried out or only shown.
"""
