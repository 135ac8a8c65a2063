"""Meshes and shortest paths: the core of each filter, our parents, and the next hops of data."""
