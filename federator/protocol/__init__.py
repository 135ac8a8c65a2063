"""The protocol, without I/O: events and a clock reading in, effects out."""
