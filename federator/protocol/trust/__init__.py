"""Who may speak in a signed federation, and how each word is known to be theirs.

The operator's federation key signs a certificate for every agent (``certificates``,
``authority``). Hellos are handshakes: they carry the certificate and a signature (``greetings``).
Two agents that have shaken hands share a key that nobody else can derive, and everything else
between them is sealed with it (``peers``). What passes through many hands, the announcement of a
core and the address of a broker, is signed by its author (``proofs``). ``guard`` puts all of it
between the protocol and the wire.

Nothing here knows an algorithm: ``primitives`` says what is wanted of them,
``runtime.trust.crypto`` brings them.

Source: docs/security.md; RFC 8967 for sealing per neighbour without clocks.
"""
