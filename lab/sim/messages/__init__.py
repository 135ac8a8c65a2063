"""Whole messages, from client to client: brokers with sessions, and who must get what."""
