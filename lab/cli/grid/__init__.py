"""The verb ``grid``: its options, and what it prints."""
