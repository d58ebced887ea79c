"""A process that writes its own chunk, over and over: ``rebase_worker.py ROOT CHUNK COUNT``."""

import sys

import frazil

LENGTH = 2


def main(root, chunk, count):
    repo = frazil.Repository.open(frazil.local_filesystem_storage(root))
    for number in range(count):
        session = repo.writable_session("main")
        session.workspace.write_chunk("/t", (chunk,), bytes([chunk, number]) * LENGTH)
        session.commit(f"{chunk}/{number}", rebase_with=frazil.ConflictDetector())
    print("done", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
