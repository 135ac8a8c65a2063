"""Thousands of brokers in one run: a mesh of hubs and their leaves, cold start, deaths, healing."""
