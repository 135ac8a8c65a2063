"""Flows over planned trees: which plans an agent follows and for how long, and measurements."""
