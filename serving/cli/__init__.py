"""The room's commands: `podium serve` and `podium deployments`."""
