"""The tables analytics reads and writes. Every transform names its input and output here."""

from analytics.schemas.figures import FIGURE_CURVES, FIGURE_VALUES, SWEEP_POINTS
from analytics.schemas.records import FIELDS, HEAD, RECORD_LINE, TABLES, record_table
from analytics.schemas.reports import REPORT_TABLES, WINDOW_S

__all__ = [
    "FIELDS",
    "FIGURE_CURVES",
    "FIGURE_VALUES",
    "HEAD",
    "RECORD_LINE",
    "REPORT_TABLES",
    "SWEEP_POINTS",
    "TABLES",
    "WINDOW_S",
    "record_table",
]
