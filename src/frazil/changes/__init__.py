"""Change sets, conflicts, rebases and merges, as functions of values without input or output."""
