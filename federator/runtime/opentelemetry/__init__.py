"""Sends spans to an OpenTelemetry collector, beside the data path and never in its way.

Source: docs/how-to/opentelemetry.md; ``protocol.opentelemetry`` defines the spans.
"""
