"""The tables analytics reads and writes. Every transform names its input and output here."""
