"""Links that arrange themselves, at work: seeds, measurements, and what is remembered."""
