"""Detecting that models no longer hold, and updating them."""
