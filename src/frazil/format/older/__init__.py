"""The formats before spec version 1: read, and imported; never written.

Everything here is pure: bytes and names in, values out.
"""
