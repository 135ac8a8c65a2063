"""Loops through forgotten bridges, at work: what is read and delivered is watched."""
