"""The service's knowledge: models that are reloaded on change, and batches of questions to them."""
