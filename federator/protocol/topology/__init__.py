"""Which brokers link with which, when brokers arrange that among themselves.

Every broker says in the announcements where it is and whom it has links with (``places``), so each
knows the whole federation (``directory``). From the ids alone everybody computes the same few
rings, shuffled by hashing (``rings``): they make the graph 2-connected and its ways short. What is
left of a broker's links goes to brokers nearby (``manager``). ``graph`` answers what holds
and what would break.

Source: docs/topology.md; docs/protocol.md 16.
"""
