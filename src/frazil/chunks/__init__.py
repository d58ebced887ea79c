"""Reads and writes of chunks: native, packed, deduplicated and virtual chunks."""
