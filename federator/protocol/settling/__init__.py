"""Detects when all brokers know that a filter is wanted here: by a wave and its echo."""
