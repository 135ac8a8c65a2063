"""Shared groups at work: stand-ins, parcels, and the known members."""
