"""Verbs that change what a running federation does."""
