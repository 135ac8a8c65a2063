"""Leaves: small brokers linked to one hub, and the filters that the two sides advertise."""
