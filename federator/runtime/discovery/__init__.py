"""Subscription discovery at work: the broker's log is heard, and its table kept on disk."""
