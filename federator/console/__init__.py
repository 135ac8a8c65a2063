"""One live page for the people who run a federation: its map, its topics, its deaths."""
