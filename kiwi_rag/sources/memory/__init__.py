"""The exchanges of a conversation memory: their table on this machine, and transcripts of other programs."""
