"""The resident service: one process a user that keeps the model, the tiers and the connections for the command line.

A caller sends its command line and where it stands; the service runs it as the command line would and sends back what
it wrote and its exit code. Whatever keeps it from that, the caller does the work itself. The caller's side
(``asking``, ``relay``, ``calls``, ``place``, ``protocol``) imports next to nothing: it is most of what a search then
costs. The service's side is ``listening``, ``server``, ``request`` and ``apps``; ``unit`` has systemd start it.
"""

from __future__ import annotations
