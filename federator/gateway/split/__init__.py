"""One client of several brokers, sans I/O: to each of them it is a separate client."""
