"""Pricing by the brokers themselves: each knows its links and its neighbours, nobody the whole.

Source: papers/psp-multicommodity-flow.txt, sections 3.2 and 6; docs/planner.md, section 5.
"""
