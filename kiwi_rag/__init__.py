"""Kiwi finds the right playbook, script or note for an AI agent by meaning, and shows only what was verified."""

__version__ = "0.1.0"
