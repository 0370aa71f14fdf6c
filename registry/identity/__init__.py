"""Who may do what: roles, tokens, protected aliases, approvals, and the trail of what was done."""
