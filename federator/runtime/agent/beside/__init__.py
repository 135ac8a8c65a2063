"""Parts beside the agent of a broker, in its process: for leaves, or while its role changes."""
