"""Shared groups at work: stand-ins, parcels, and what is known of members."""
