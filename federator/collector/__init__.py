"""Collects the metrics streams of a federation in one folder, each record exactly once."""
