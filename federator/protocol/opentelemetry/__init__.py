"""Frames on their way as traces of OpenTelemetry: which are told, and what is said of them.

Source: docs/how-to/opentelemetry.md; what sends spans is in ``runtime.opentelemetry``.
"""
