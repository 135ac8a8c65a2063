"""Settling at work: gateways ask whether a subscription is known across the federation."""
