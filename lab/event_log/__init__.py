"""Large event logs, made with the simulator's code: what a federation's agents would have written.

A film set, not a city: the protocol's own nodes play a few minutes of a federation's life (starts,
deaths, a cut, both routings) in the simulated world, and real frames show who carries what where.
Those minutes are then played at length: the quiet ones as often as needed, with traffic drawn a
whole minute at a time. So every row obeys the meshes, and a hundred million take minutes.

Source: docs/metrics.md.
"""
