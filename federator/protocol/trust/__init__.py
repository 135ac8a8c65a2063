"""Who may speak in a signed federation, and how each word is known to be theirs.

A passport office, handshakes and wax. The operator's federation key signs a passport for every
agent (``certificates``, ``authority``). Hellos are handshakes: they carry the passport and a
signature (``greetings``). Two agents that have shaken hands share a key that nobody else can
derive, and everything else between them wears its seal (``peers``). What passes through many hands,
the word of a core, is signed by the core itself (``proofs``). ``guard`` puts all of it between the
protocol and the wire.

Nothing here knows an algorithm: ``primitives`` says what is wanted of them, ``runtime.crypto``
brings them.

Source: docs/security.md; RFC 8967 (Babel) for sealing per neighbour without clocks.
"""
