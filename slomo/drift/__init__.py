"""Noticing that what was learned no longer holds, and learning it again."""
