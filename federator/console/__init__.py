"""One live page for operators of a federation: its map, its topics, its failures."""
