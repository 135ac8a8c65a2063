"""What agents, gateways and operators say to each other: the messages, and their wire forms."""
