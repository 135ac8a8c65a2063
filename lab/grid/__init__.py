"""Real brokers and agents on one machine, with the delays of a network between them."""
