"""The formats before spec version 1, which Frazil reads and imports, and never writes.

All functions are pure: they take bytes and names, and return values.
"""
