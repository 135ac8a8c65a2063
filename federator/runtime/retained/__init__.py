"""Retained values at work: what our broker retains is read, compared and filled."""
