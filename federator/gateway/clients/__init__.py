"""Clients at the gateway, at run time: how they are admitted, served, moved and dismissed."""
