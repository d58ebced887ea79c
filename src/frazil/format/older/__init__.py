"""The formats before spec version 1, which Frazil reads and imports, and never writes."""
