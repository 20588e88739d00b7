"""The local service: one process per user that keeps the model, the tiers and the connections open.

A client sends its command line, working directory and environment. The service runs the command as the client's
process would, and returns the output and the exit code. If it cannot, the client runs the command itself. The client
side (``client``, ``protocol``) imports very little, because starting Python is most of the time of such a
search. The service side is ``server`` and ``apps``; ``systemd`` installs a user unit.
"""

from __future__ import annotations
