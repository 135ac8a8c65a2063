"""Retained messages across brokers: versions, what each broker holds, and how two brokers agree."""
