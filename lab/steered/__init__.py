"""Narrow links under a demand that fits, with and without a steerer."""
