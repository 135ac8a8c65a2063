"""Tests whether this broker can take part and how to fix it; and the ACL that an agent needs."""
