"""Frames from agent to agent in datagrams, with repair packets: for links on which TCP waits.

A courier who knows that the road eats one parcel in fifty sends a few more than needed, made so
that any of them stands in for any that is lost. The parcels go out as they come; only a receiver
that lost one opens the spare ones.

``wire`` is what stands in a datagram, ``sender`` and ``receiver`` are the two ends of one
direction, ``protection`` measures the road and says how many to spare. What cannot be mended
in time comes back to the owner, who sends it by the broker. Who may speak is not judged here: see
``protocol.trust``.

Source: Esposito 2018; RFC 6363 for the shape; docs/udp-fec.md.
"""
