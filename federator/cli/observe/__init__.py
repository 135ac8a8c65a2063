"""Verbs that show what agents do; none of them changes anything."""
