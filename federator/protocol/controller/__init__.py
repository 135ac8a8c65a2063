"""The controller: presence, the session flow table, substitutes and takeovers."""
