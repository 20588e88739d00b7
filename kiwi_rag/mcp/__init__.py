"""The interface for agents: toolsets over the Model Context Protocol, on stdio and HTTP.

``tool`` defines a tool, ``toolsets`` lists the modules that provide some, ``server`` serves the chosen ones through the
official SDK, ``stdio`` and ``http`` are its transports, ``context`` is shared by all calls, ``jobs`` runs long work.
"""
