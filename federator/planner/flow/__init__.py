"""Multicommodity flow: who carries what over links of limited capacity (docs/planner.md)."""
