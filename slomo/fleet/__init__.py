"""Many hosts and many servers: bulk predictions, shared models, campaigns over hosts; computed by external engines."""
