"""The gateway at its brokers: its own connections, what it asks, and what it leaves tidy there."""
