"""Delegation and placement as Fawwaz (2022) sweeps them."""
