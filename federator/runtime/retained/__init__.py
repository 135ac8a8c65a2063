"""Retained values at work: what our broker holds is read, compared and filled."""
