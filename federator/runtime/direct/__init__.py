"""Direct links between agents: one agent's port, and its connections to neighbours' ports."""
