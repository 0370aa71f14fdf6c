"""The HTTP server: the `Registry` protocol for a team, and the app that the pages hang on."""
