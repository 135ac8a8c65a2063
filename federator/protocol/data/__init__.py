"""The data plane, without I/O: publications of our clients out, frames of other agents in."""
