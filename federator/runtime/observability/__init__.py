"""What an agent shows to those who ask it: its pages and its metrics."""
