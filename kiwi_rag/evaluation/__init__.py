"""Search quality on judged queries: datasets, metrics, runs and their comparison."""
