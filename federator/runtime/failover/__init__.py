"""Failover at work: reports on our broker and its clients, and the protocol's orders."""
