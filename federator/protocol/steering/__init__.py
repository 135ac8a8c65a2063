"""Flows over planned trees: whose plans an agent follows and for how long, and measurements."""
