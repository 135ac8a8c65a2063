"""A deterministic world in which the same protocol code runs: docs/simulator.md."""
