"""Direct links between agents, without I/O: what was sent and is not confirmed."""
