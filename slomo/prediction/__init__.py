"""Questions about servers, and the predictions that answer them; import from this package's files."""
