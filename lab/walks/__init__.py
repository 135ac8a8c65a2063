"""How many files one thing passes on its way through the house: the walks of ARCHITECTURE.md."""
