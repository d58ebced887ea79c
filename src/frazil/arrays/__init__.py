"""Arrays with numpy's indexing: reads of whole selections, planned as columns.

selection ──selection──> axes ──pieces──> rows: one for each chunk
──references──> byte ranges ──requests──> few reads ──decoders──> pieces ──placement──> result
"""
