"""Programs: what opens a session, reads, writes and ends."""
