"""Many files become one version of a repository: as copies, or as references to the bytes in the files.

sources    what a file holds, and what a reader of a format has to be able to do
opening    which reader is for a file: by its first bytes
"""
