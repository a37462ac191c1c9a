"""Commands that act on machines, or say what acting would do."""
