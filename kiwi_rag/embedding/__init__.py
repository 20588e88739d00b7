"""Embedding providers, and the persistent cache before all of them; `factory.load_provider` makes the one in use."""
