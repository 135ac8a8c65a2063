"""Agents' metrics: records, the histogram in them, and how readers fetch them again.

A federation's metrics stream is a handful of tables that grow by a batch a second. Writers (the
agent, the grid) and all readers (the collector, analytics' live source) share these types; Spark's
schemas are made from docs/metrics.md, which a test keeps equal to the types.
"""
