"""Which brokers of a multicast tree add repair packets, and how many: docs/codecs.md."""
