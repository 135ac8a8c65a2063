"""QoS 1 and 2 across the federation: nothing lost, nothing twice, in order.

The origin keeps what it sent in a log. Each agent whose broker has subscribers counts the frames
and asks for those that are missing. Relays keep nothing. It is a newspaper with numbered issues: a
reader who gets number 7 after number 5 writes to the publisher, and the newsagents in between need
no archive.

Frames made of QoS 1 and 2 publications are numbered per origin. Per filter they form a *chain*:
each frame names, for each of its filters, the frame before it on that filter. So an agent that
follows one filter notices a gap without knowing anything about the others.

Source: docs/protocol.md section 11; negative acknowledgements as in NORM (RFC 5740) and PGM (RFC
3208).
"""
