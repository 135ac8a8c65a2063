"""Where publications go, pure: tables by filter, frames, and the runs of packets inside them."""
