"""Keys and certificates at work: read from files, kept up with them, and used by the guard."""
