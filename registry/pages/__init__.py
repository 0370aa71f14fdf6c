"""The pages of the registry: rendered here, kept up to date by events, usable without a build step."""
