"""One agent as a process: its parts, how they are joined, and its connections to its own broker."""
