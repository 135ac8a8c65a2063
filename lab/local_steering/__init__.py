"""Steering without a centre, on the product's own nodes: a study beside the central steerer."""
