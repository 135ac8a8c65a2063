"""Verbs that need the extra ``planner``: where traffic, cores and containers should be."""
