"""Policies that choose servers for requests, one per file."""
