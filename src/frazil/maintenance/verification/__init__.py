"""Verification: checks that all files exist that the versions of a repository refer to.

    metadata    Snapshots, transaction logs, manifests, and the backups with the ops log can be read. Their
                contents fit their names and each other.
    exists      In addition, every chunk file is long enough. Every foreign object is long enough and has the
                state that the references contain.
    checksum    In addition, every byte of the chunks can be read, and all backups that the ops log names.

``versions``, ``manifests``, ``chunks`` and ``backups`` contain the pieces of work, which a worker in any
process can do. ``plan`` combines them. A verification writes nothing and raises no error for damage.
"""
