"""Who our neighbours are, which of them we can talk with, and what crossing a link costs."""
