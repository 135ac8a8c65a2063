"""Measuring brokers, Mosquitto's bridges and our agents side by side, on real processes."""
