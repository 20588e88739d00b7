"""The agents' door: toolsets over the Model Context Protocol, by stdio and by HTTP.

``tool`` says what a tool is, ``toolsets`` names the rooms that have some, ``server`` puts those that were asked
for behind the official SDK, ``stdio`` (over a ``wire`` with a ``greeting``) and ``http`` carry it.
"""
