"""Clients at the gateway, at work: how they come in, are attended, moved and let go."""
