"""DataFrame in, DataFrame out: no session, no I/O."""
