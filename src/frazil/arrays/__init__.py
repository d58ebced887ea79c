"""Arrays with numpy's indexing: reads of whole selections, planned as columns.

index -> slices -> pieces (one row for each chunk) -> references -> requests -> decoded pieces in the result
"""
