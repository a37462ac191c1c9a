"""What the service answers from: models that are reloaded on change, and questions put to them in batches."""
