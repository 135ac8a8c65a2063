"""What agents tell about themselves: records, the histogram in them, and how they are read again.

A federation's metrics stream is a handful of tables that grow by a batch a second. Writers (the
agent, the grid) and all readers (the collector, analytics' live source) share these types; Spark's
schemas are made from docs/metrics.md, which a test keeps equal to the types.
"""
