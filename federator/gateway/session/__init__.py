"""One client of the gateway, pure: packets in; packets and orders out, when its broker died too."""
