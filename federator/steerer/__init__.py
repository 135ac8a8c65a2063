"""Steers a live federation: hears what agents carry, and publishes trees for the heavy flows."""
