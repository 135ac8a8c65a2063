"""What the daemons are told that read all brokers of a federation."""
