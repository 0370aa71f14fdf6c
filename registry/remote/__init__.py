"""The HTTP client: the `Registry` protocol over a server of podium."""
