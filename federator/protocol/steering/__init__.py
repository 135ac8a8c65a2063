"""Flows that go by planned trees: who may plan, what is believed for how long, what is measured."""
