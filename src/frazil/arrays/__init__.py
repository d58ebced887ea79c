"""Arrays with numpy's indexing: reads of whole selections, planned as columns.

selection ──selection──> axes ──blocks──> rows: one for each chunk
──references──> byte ranges ──requests──> few reads ──decoders──> blocks ──placement──> result
"""
