"""The service's models: reloaded when files change, and asked in batches."""
