"""Links over TCP beside links over datagrams, through the same lossy roads of real packets.

Each broker and its agent stand in a network namespace of their own. Between two namespaces lies a
pair of TUN devices, and a program of ours hands on every IP packet from one to the other: late, and
not all of them.

Source: docs/udp-fec.md, "Measured".
"""
