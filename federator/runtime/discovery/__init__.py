"""Subscription discovery at work: reads the broker's log, and stores its table on disk."""
