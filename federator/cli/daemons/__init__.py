"""Verbs that run until they are stopped."""
