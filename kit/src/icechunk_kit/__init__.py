"""Conformance tests for implementations of the Icechunk format.

The kit writes repositories by itself, from the specification: it imports no implementation. An implementation
provides an adapter, a command that reads requests as lines of JSON and answers each with one line of JSON.
"""
