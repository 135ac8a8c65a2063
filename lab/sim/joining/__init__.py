"""Brokers that join by one of them and arrange their links among themselves.

Source: docs/protocol.md section 16.
"""
