"""Tests that plug-ins must pass; import the files of this package."""
