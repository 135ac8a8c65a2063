"""The ends of the data plane, pure: what goes out, what is delivered, and changes of the cover."""
