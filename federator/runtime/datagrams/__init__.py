"""Links over datagrams at work: one socket, sealed datagrams, and a timer."""
