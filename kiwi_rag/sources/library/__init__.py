"""Documentation of libraries as a source: records, discovery of files, packages, and which version is meant."""
