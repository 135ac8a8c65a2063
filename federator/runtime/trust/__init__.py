"""Keys and certificates at work: read from files, kept up to date, and used by the guard."""
