"""Decisions that need a solver or a global view: computed apart, published, carried out by agents.

Where publications should flow when links are narrow (docs/planner.md), and which broker is
preferred as a core (docs/steering.md, "Cores"). Pure: no clock, socket, file or unseeded random
number. Needs the extra ``planner``; importing this package alone does not.
"""
