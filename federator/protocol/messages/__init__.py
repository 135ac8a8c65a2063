"""The messages between agents, gateways and operators, and their wire forms."""
