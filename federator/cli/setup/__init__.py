"""Verbs that set an agent up, and say what it lacks."""
