"""Takes a steerer's plans from our broker, and tells it what we carry."""
