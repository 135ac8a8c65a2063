"""The protocol, pure: events and a clock reading in, effects out."""
