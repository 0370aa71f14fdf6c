"""The pages of serving: deployments, live."""
