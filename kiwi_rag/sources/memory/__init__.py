"""Exchanges of conversations as a source, and the transcripts of AI clients that they are imported from."""
