"""Authentication in a signed federation: which agents may send, and how each message is verified.

The operator's federation key signs a certificate for every agent (``certificates``, ``authority``).
Hellos are handshakes: they carry the certificate and a signature (``greetings``). Two agents that
have exchanged hellos share a key that no other party can derive, and everything else between them
is sealed with it (``peers``). What relays forward, the announcement of a core and the address of a
broker, is signed by its author (``proofs``). ``guard`` puts all of it between the protocol and the
wire.

This package contains no algorithm: ``primitives`` defines their interfaces,
``runtime.trust.crypto`` provides them.

Source: docs/security.md; RFC 8967 for sealing per neighbour without clocks.
"""
