"""A process that changes one local repository: ``mixed_writer.py ROOT KIND NAME DONE``.

It appends a line to the file DONE for each change that was acknowledged. KIND is ``frazil``, or ``inode``: a
stand-in for another implementation, which locks the inode of ``repo`` (``flock``), compares an etag of inode,
time and size, and renames a new file. It does not know the locks of Frazil, and leaves no backups.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import frazil
from frazil.format.repo_info import decode_repo_info, encode_repo_info


def etag(status: Any) -> Any:
    return status.st_ino, status.st_mtime_ns, status.st_size


def inode_writer(root: str, name: str) -> Iterator[Any]:
    path = os.path.join(root, "repo")
    for number in itertools.count():
        key = f"{name}.{number}"
        while True:
            with open(path, "rb") as file:
                tag, info = etag(os.fstat(file.fileno())), decode_repo_info(file.read(), "repo")
            new = encode_repo_info(replace(info, metadata={**info.metadata, key: number}), level=1)
            with open(path, "rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                if etag(os.stat(path)) == tag:
                    temporary = f"{path}#{os.getpid()}"
                    with open(temporary, "wb") as other:
                        other.write(new)
                    os.rename(temporary, path)
                    break
        time.sleep(0.2)  # it does not flush, so without a pause it would win most races
        yield key


def frazil_writer(root: str, name: str) -> Iterator[Any]:
    repo = frazil.Repository.open(frazil.local_filesystem_storage(root))
    for number in itertools.count():
        session = repo.writable_session("main")
        yield session.commit(f"{name}.{number}", allow_empty=True, rebase_with=frazil.ConflictDetector())


def main(root: str, kind: str, name: str, done: str) -> None:
    changes = {"frazil": frazil_writer, "inode": inode_writer}[kind](root, name)
    with open(done, "a", buffering=1) as file:
        file.writelines(f"{change}\n" for change in changes)


if __name__ == "__main__":
    main(*sys.argv[1:])
