"""Failover at work: what the protocol is told of our broker and its clients, and what it orders."""
