"""Meshes and shortest paths: which core a filter has, who is its parent, and where data goes."""
