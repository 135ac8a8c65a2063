"""One client before several brokers, pure: to each of them it is a client of its own."""
