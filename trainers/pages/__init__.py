"""The pages of runs: what ran, what it made, what it prints, and what a person may tell it."""
