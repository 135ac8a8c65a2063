"""Sends spans to a collector of OpenTelemetry, beside the data path and never in its way.

Source: docs/how-to/opentelemetry.md; what spans say is in ``protocol.opentelemetry``.
"""
