"""OpenTelemetry traces of frames on their way: which are traced, and the contents of spans.

Source: docs/how-to/opentelemetry.md; ``runtime.opentelemetry`` sends the spans.
"""
