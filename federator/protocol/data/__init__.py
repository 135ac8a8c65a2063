"""The ends of the data plane, without I/O: sending, delivery, and changes of the cover."""
