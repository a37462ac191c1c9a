"""The service's models: reloaded when their files change, and asked for many predictions at once."""
