"""Verification: checks that all files exist that the versions of a repository refer to.

    metadata    Snapshots, transaction logs, manifests, and the backups with the ops log can be read. Their
                contents fit their names and each other.
    exists      In addition, every chunk file is long enough. Every foreign object is long enough and has the
                state that the references contain.
    checksum    In addition, every byte of the chunks can be read, and all backups that the ops log names.

``snapshots``, ``manifests``, ``chunks`` and ``ops_log`` contain the pieces of work, which a worker in any
process can do: an item is a pair of a value that all elements share, and the elements. A piece yields one
result for each element, in order. ``plan`` combines them. A verification writes nothing and raises no error
for damage.
"""
