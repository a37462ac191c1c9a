"""Commands that change settings of machines, or predict what such a change would do."""
