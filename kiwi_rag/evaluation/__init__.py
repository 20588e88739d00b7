"""How good is the ranking? Judged queries in, metrics with intervals, differences and plots out."""
