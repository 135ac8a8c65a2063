"""Steers a live federation: receives agents' loads, and publishes trees for the heavy flows."""
