"""A workspace as a source of documents: settings (`config`), files (`source`, `walk`), changes (`watch`)."""
