"""Links at work: connections to neighbours, and control messages on them."""
