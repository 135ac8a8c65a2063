"""Faults on a grid of real processes, and checkers that count every message end to end."""
