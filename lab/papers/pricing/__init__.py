"""Pricing by the brokers themselves: each knows its links and its neighbours, nobody the whole.

Source: Manzoni 2022, 3.2 and 6; docs/planner.md 5.
"""
