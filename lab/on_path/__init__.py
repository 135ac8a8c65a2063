"""A machine on the path between agents, which harms what it can without a key."""
