"""Can this broker take part? Tried, judged, and mended; and the ACL that an agent needs."""
