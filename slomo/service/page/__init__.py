"""HTML pages at ``/``: rendered on the server, without a build step or external resources."""
