"""The metrics stream of one agent: recorded beside the data path, kept in a spool, told live.

Source: docs/metrics.md; what the records are is in ``protocol.telemetry``.
"""
