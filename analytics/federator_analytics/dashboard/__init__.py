"""The report tables as a page that keeps itself current."""
