"""Delegation: which topics an edge broker owns (docs/placement.md)."""
