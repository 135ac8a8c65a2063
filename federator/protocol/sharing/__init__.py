"""Shared subscriptions across brokers: each publication to one member of a group, anywhere.

Every broker with members of a group announces how many; each broker that takes a publication from
a client knows from that who must get it, and sends it to **one** broker with members, as a parcel
that is kept until that broker has it.

Source: docs/protocol.md 12.
"""
