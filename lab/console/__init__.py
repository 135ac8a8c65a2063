"""A console before real brokers, in a real browser: its pictures, and how fluid its map is."""
