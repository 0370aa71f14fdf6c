"""The room's commands: `podium run`, `evaluate`, `runs` and `worker`."""
