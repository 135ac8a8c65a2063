"""The ways to a broker beside each other: how much a link carries over each."""
