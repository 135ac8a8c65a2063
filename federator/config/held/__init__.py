"""Settings that another process has validated, as an agent holds them without pydantic."""
