"""Keys, DSSE envelopes and trust. Pure where it matters: bytes in, verified value out, or raise."""
