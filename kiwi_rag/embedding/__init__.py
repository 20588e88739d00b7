"""Text → vectors: one module a provider, a persistent cache before all of them."""
