"""The file formats of Icechunk: bytes to columns and back, without any I/O."""
