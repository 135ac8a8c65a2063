"""Report tables as one HTML page that needs nothing else, and as summary.json."""
