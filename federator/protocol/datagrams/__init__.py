"""Frames from agent to agent in datagrams, with repair packets: for links on which TCP waits.

A courier who knows that the road eats one parcel in fifty sends a few more than needed, made so
that any of them replaces any that is lost. The parcels are handed out as they come; only a receiver
that lost one opens the spare ones.

``wire`` has the format of a datagram, ``sender`` and ``receiver`` are the two ends of one
direction, ``protection`` measures losses and decides how many packets to spare. A frame that cannot
be repaired in time is given back to the owner, which sends it through the broker. Authentication is
elsewhere: see ``protocol.trust``.

Source: Esposito 2018; RFC 6363 for the shape; docs/udp-fec.md.
"""
