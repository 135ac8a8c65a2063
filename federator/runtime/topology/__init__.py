"""Links that arrange themselves, at work: seeds, measurements, and known brokers."""
