"""What an agent shows on request: its pages and its metrics."""
