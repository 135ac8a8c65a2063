"""Mosquitto's own tests of a broker, through the gateway: fetched, run, and held against a list."""
