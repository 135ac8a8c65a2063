"""A signed federation under attack, by strangers who hear and say all, or by a member.

Source: docs/security.md.
"""
