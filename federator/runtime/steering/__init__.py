"""Receives a steerer's plans from our broker, and reports our load to it."""
