"""The metrics stream of one agent: recorded beside the data path, spooled, published live.

Source: docs/metrics.md; ``protocol.telemetry`` defines the records.
"""
