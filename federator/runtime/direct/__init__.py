"""Links straight from agent to agent: one agent's port, and its connections to neighbours'."""
