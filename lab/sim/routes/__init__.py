"""Routes of imagined clients: announcements, meshes, shortest paths."""
