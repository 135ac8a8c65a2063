"""Decides which flows of a live federation get a tree of their own, from what agents measured."""
