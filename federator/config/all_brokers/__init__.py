"""The settings of daemons that read all brokers of a federation."""
