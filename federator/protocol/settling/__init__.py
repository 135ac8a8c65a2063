"""When does everybody know that a filter is wanted here? Asked by a wave, answered by its echo."""
