"""A process that commits until its share is in the history: ``commit_worker.py ROOT WORKER COUNT``."""

import sys

from frazil.errors import ConflictError
from frazil.handle.repository import Repository
from frazil.storage import local_filesystem_storage

GROUP = b'{"zarr_format": 3, "node_type": "group", "attributes": {"worker": "%s"}}'


def main(root: str, worker: str, count: int) -> None:
    repo = Repository.open(local_filesystem_storage(root))
    for message in (f"{worker}/{n}" for n in range(count)):
        while True:
            session = repo.writable_session("main")
            session.workspace.set_node(f"/{worker}", GROUP.replace(b"%s", message.encode()))
            try:
                session.commit(message)
            except ConflictError:
                continue
            break
    print("done", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
