"""Derived arrays: their definitions, what they read, and the refresh of what has changed."""
