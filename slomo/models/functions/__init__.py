"""Fitted functions as arrays: trees and smooth ones."""
