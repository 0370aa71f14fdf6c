"""The pages of triggers: events as they happen, what became of them, and dead letters."""
