"""Placement: where brokers, services and cores run (docs/placement.md)."""
