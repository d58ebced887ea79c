"""The rules of the specification for metadata files, as checks of their bytes.

The decoders accept some files that break a rule, because readers do not need the rule: they sort vectors that
a writer did not sort. The modules of this room read the same bytes and yield each broken rule by its name.
The names are those of `frazil.maintenance.verification.checks`.

    violation         a broken rule, and functions that all modules use
    headers           the 39 bytes before the payload, and the payload
    repo_info         the file `repo`
    refs              branches, tags and snapshots in the file `repo`
    updates           the ops log in the file `repo`
    snapshot          snapshots
    nodes             the nodes of snapshots
    extents           the manifests of the nodes
    manifest          manifests
    transaction_log   transaction logs
    moves             the moves in transaction logs
"""
