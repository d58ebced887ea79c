"""The survey: which file is needed by which array of which version. Upkeep is a set of queries on it.

    ObjectListing        the objects of a folder, from one listing                      ``list_objects``
    SnapshotManifests    versions -> manifests                                          ``Survey.manifests``
    ManifestUses         manifest -> arrays, their boxes, a version                     ``ManifestUses.of``
    ManifestChunks       manifests -> digests of chunk files, for sets in memory ``Survey.chunk_digests``
    FileUses             manifest -> chunk files, the last used byte of each            ``Survey.file_uses``
    RangeSums            manifests -> ranges of chunk files and of foreign objects      ``Survey.range_sums``

Every column comes in parts, by version or manifest, and the caller reduces each part at once. ``Survey``
reads each file once, in limited memory, and skips what the stored index has (``index``). ``steps.run_with``
is the one parallel step: a piece of work for many items, on threads of this process or as tasks of an engine.
Checks that read more than these columns, such as the rules of a verification, are pieces of their own.

``steps``     Piece, Run, run_with, batches of items, side_by_side, progress
``columns``   the tables above, and sets of ids: among, distinct, each_once
``digests``   sets by digests: Marks, DistinctRanges
``index``     the stored index under ``walks/``
``survey``    Survey, Bounds, read_files, reachable
"""
