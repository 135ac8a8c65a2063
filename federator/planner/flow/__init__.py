"""Multicommodity flow: routes for topics over links of limited capacity (docs/planner.md)."""
