"""Where publications go, without I/O: tables by filter, frames, and runs of packets."""
