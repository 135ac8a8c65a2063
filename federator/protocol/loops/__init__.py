"""Bridges beside the federation that lead publications in circles: noticed, and made harmless."""
