"""The sans-I/O session of one client: packets in; packets and orders out. Survives its broker."""
