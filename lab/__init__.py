"""The laboratory: what proves the product, and is not installed with it.

The protocol in a simulated world, grids of real processes, faults, measurements beside others, and
the papers' figures. It may use every package of ours; none of them knows of it.
"""
