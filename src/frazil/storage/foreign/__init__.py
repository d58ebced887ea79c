"""Reads of the objects that virtual chunks refer to."""
