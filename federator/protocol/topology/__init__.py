"""Links that brokers arrange among themselves.

Every broker announces its address and its links (``places``), so each knows the whole federation
(``directory``). From the ids alone all brokers compute the same few rings, shuffled by hashing
(``rings``): they make the graph 2-connected and its paths short. The rest of a broker's links go to
brokers nearby (``manager``). ``graph`` finds what connects the graph and what would part it.

Source: docs/topology.md; docs/protocol.md 16.
"""
