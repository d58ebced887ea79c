"""Is everything there that the versions of a repository refer to?

    metadata    the files that versions are made of can be read, are the files that their names say, and agree
                with one another: snapshots, transaction logs, manifests, and the backups that hold the ops
                log
    exists      and every chunk file is long enough, and every foreign object, and in the state that the
                references remember
    checksum    and every byte of chunks can be read, and all backups that the ops log names

``versions``, ``manifests``, ``chunks`` and ``backups`` hold the pieces of work, which a worker anywhere can
do. ``plan`` puts them together. Nothing is written, and no damage is an error.
"""
