"""A workspace as a source of documents: its settings (`config`), its files (`walk`, `source`), their changes (`watch`)."""
