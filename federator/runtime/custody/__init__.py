"""Custody at work: its log and journal on disk, and its marker on our broker."""
