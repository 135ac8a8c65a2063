"""Detects bridges beside the federation that lead publications in circles, and stops the copies."""
