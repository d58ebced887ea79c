"""The command `frazil` beside `git`, on histories and listings of the same length.

Each value is the processor time of whole processes, with the start of the interpreter. git stores one file of
text where Frazil stores one array.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import zarr
from measure import Measured, scratch

from history import make

GIT = "git"


def processor_seconds(command: Sequence[str], folder: str) -> float:
    """Run a command, and return its processor time."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def frazil(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "frazil", *arguments]


def measured(
    implementation: str, root: str, rows: dict[str, tuple[list[str], list[str]]], repeats: int = 3
) -> Measured:
    """Measure commands of Frazil or of git. A row has both."""
    out = Measured()
    for name, commands in rows.items():
        command = commands[implementation == GIT]
        if command:
            times = [processor_seconds(command, root) for _ in range(repeats)]
            out[f"{name}, processor s"] = sorted(times)[repeats // 2]
    return out


def start(implementation: str) -> Measured:
    """Measure the help, and commands on a repository of three versions."""
    with scratch() as root:
        if implementation == GIT:
            import_into_git(root, commits(3))
        else:
            make(f"{root}/ice", 3)
        rows = {
            "help": (frazil("--help"), ["git", "--help"]),
            "log": (frazil("log", "ice"), ["git", "log", "--oneline"]),
            "refs": (frazil("refs", "ice"), ["git", "show-ref"]),
            "python with numpy": ([sys.executable, "-c", "import numpy"], []),
        }
        return measured(implementation, root, rows)


def log(implementation: str, number: int) -> Measured:
    """Measure the history of many commits."""
    with scratch() as root:
        if implementation == GIT:
            import_into_git(root, commits(number))
        else:
            make(f"{root}/ice", number)
        rows = {
            "log": (frazil("log", "ice"), ["git", "log", "--oneline"]),
            "log -n 10": (frazil("log", "ice", "-n", "10"), ["git", "log", "--oneline", "-n", "10"]),
        }
        return measured(implementation, root, rows, 1)


def ls(implementation: str, arrays: int) -> Measured:
    """Measure the list of the members of a large group."""
    with scratch() as root:
        if implementation == GIT:
            import_into_git(root, tree(arrays))
        else:
            many_arrays(f"{root}/ice", arrays)
        return measured(
            implementation, root, {"ls": (frazil("ls", "ice"), ["git", "ls-tree", "-r", "HEAD"])}, 1
        )


def origins(implementation: str, side: int, number: int, chunks: int) -> Measured:
    """Measure questions to the logs of an array: side x side chunks, and a number of them in each commit."""
    with scratch() as root:
        if implementation == GIT:
            import_into_git(root, commits(number))
            check = f'test "$(cut -d" " -f2 file)" -lt {number * 2 // 3}'
            first = subprocess.run(
                ["git", "rev-list", "--max-parents=0", "main"], cwd=root, capture_output=True, check=True
            ).stdout.decode()
            subprocess.run(["git", "checkout", "-q", "main"], cwd=root, check=True, stdout=subprocess.DEVNULL)
            subprocess.run(
                ["git", "bisect", "start", "main", first.strip()],
                cwd=root,
                check=True,
                stdout=subprocess.DEVNULL,
            )
            bisect: list[str] = ["git", "bisect", "run", "sh", "-c", check]
        else:
            bad = written(f"{root}/ice", side, number, chunks)
            bisect = [sys.executable, "-c", BISECT, bad]
        rows = {
            "blame": (frazil("blame", "ice:a"), []),
            "log of a path": (frazil("log", "ice:a"), ["git", "log", "--oneline", "--", "file"]),
            "bisect with a check that costs nothing": (bisect, bisect),
        }
        return measured(implementation, root, rows, 1)


#: The versions from the argument on are bad. The check needs no data, and git's check reads one small file.
BISECT = """
import sys
import frazil

repo = frazil.Repository.open(frazil.local_filesystem_storage("ice"))
ids = [each.id for each in repo.ancestry(branch="main")]
bad = set(ids[: ids.index(sys.argv[1]) + 1])
report = repo.history.bisect(lambda session: session.snapshot_id not in bad, good=ids[-1], path="a")
assert report.first_bad.id == sys.argv[1]
"""


def commits(number: int) -> Iterator[str]:
    """Yield a history of one small file, in the format of ``git fast-import``."""
    for count in range(number):
        text, message = f"version {count}\n", f"hourly update {count}\n"
        yield f"commit refs/heads/main\ncommitter A <a@b> {1_700_000_000 + count} +0000\n"
        yield f"data {len(message)}\n{message}\nM 644 inline file\ndata {len(text)}\n{text}\n"


def tree(files: int) -> Iterator[str]:
    """Yield one commit of many small files."""
    yield "commit refs/heads/main\ncommitter A <a@b> 1700000000 +0000\ndata 4\nmany\n"
    for count in range(files):
        yield f"M 644 inline d{count // 1000}/a{count}\ndata 2\nx\n\n"  # large folders take minutes here


def import_into_git(root: str, lines: Iterator[str]) -> None:
    subprocess.run(["git", "init", "-q", "-b", "main", root], check=True)
    subprocess.run(["git", "fast-import", "--quiet"], cwd=root, input="".join(lines).encode(), check=True)


def many_arrays(root: str, arrays: int) -> None:
    """Make a repository with arrays that have the same document."""
    from frazil import Repository, local_filesystem_storage

    repo = Repository.create(local_filesystem_storage(root))
    session = repo.writable_session("main")
    zarr.create_array(session.store, name="a", shape=(8,), chunks=(4,), dtype="f4")
    workspace = session.workspace
    document = bytes(workspace.require_node("/a").user_data)
    for number in range(1, arrays):
        workspace.set_node(f"/a{number}", document)
    session.commit("arrays")


def written(root: str, side: int, number: int, chunks: int) -> str:
    """Make a repository of commits that each wrote some chunks at random. Only the tip has a snapshot.

    Return the id of the version at two thirds of the history.
    """
    from frazil import Repository, local_filesystem_storage
    from frazil.format.ids import id_from_text
    from frazil.format.transaction_log import empty_log, encode_transaction_log

    make(root, number)
    repo = Repository.open(local_filesystem_storage(root))
    session = repo.writable_session("main")
    zarr.create_array(session.store, name="a", shape=(side, side), chunks=(1, 1), dtype="f4", overwrite=True)
    count = side * side
    zeros = np.zeros(count, np.uint64)
    session.store.set_virtual_refs_arr(
        "a", (side, side), ["s3://bucket/file"] * count, zeros, zeros + 4, validate_containers=False
    )
    session.commit("the newest")
    node = repo.readonly_session("main").workspace.require_node("/a").id
    ids = [each.id for each in repo.ancestry(branch="main")][-2::-1]
    random = np.random.default_rng(0)
    for at, id_ in enumerate(ids):
        cells = np.unique(random.integers(0, count, chunks)) if at else np.arange(count)
        index = np.stack([cells // side, cells % side], -1).astype(np.uint32)
        written_log = replace(empty_log(id_from_text(id_)), updated_chunks={node: index})
        Path(root, "transactions", id_).write_bytes(encode_transaction_log(written_log))
    return ids[number * 2 // 3]
