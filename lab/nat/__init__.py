"""A site behind real NAT, beside one that can be reached, in network namespaces."""
