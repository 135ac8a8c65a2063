"""Loops through forgotten bridges: watches what is read and delivered."""
