"""What stays on disk: whole files, locked folders, an agent's state."""
