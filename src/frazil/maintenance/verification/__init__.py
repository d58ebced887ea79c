"""Verification: checks that the files that versions refer to exist, and fit each other."""
