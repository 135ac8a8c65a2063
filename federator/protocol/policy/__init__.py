"""What may leave or enter a broker, and what may cross a link."""
