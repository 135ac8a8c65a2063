"""The papers' own experiments: what only remakes their tables and figures."""
