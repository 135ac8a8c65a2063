"""Multicommodity flow as Manzoni (2022) compares it."""
