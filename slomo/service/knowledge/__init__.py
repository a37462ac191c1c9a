"""The service's models: reloaded when their files change, and used for many predictions at once."""
