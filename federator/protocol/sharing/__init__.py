"""Shared subscriptions across brokers: each publication goes to one member of a group, anywhere.

Every broker with members of a group announces how many; a broker where a client publishes knows
from this which groups must be served, and sends the publication to **one** broker with members, as
a parcel that is kept until that broker has it.

Source: docs/protocol.md 12.
"""
