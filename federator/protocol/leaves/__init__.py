"""Leaves: small brokers that hang on one hub, and what each side is told of what others want."""
