"""The page at ``/``: rendered on the server, no build step, nothing from elsewhere."""
