"""podium's own tests: see CONTRIBUTING.md for what each tier needs."""
