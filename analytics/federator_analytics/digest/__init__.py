"""What the report tables say: rows, figures and words, for the page and for the dashboard."""
