"""Two implementations write one repository in turns. With one adapter, it plays both."""

from __future__ import annotations

import random
from pathlib import Path

from icechunk_kit.case import Step, case
from icechunk_kit.cases.script import steps

RULE = (
    "Icechunk defines a series of interconnected metadata and data files that together comprise the format."
)


def both(line: str) -> list[Step]:
    """Return a step for each of the two implementations."""
    return [*steps(f"0: {line}"), *steps(f"1: {line}")]


@case(
    "turns.commits",
    "writer",
    "2.0",
    RULE,
    "Two teams with two implementations cannot share a repository: one of them damages it.",
)
def _commits(folder: Path) -> list[Step]:
    result = steps("base")
    chunks, ids = ["0000", "0101", "0202", "0303"], ["base"]
    for number in range(20):
        ids.insert(0, f"c{number}")
        chunks[number % 4] = f"{number:02x}" * (2 if number % 3 else 600)
        result += steps(f"{number % 2}: change c{number}: g/a/c/{number % 4} = {chunks[number % 4]}")
        if number % 5 == 4:
            result += both(f"read main /g/a {' '.join(chunks)}")
    return [*result, *both(f"log main {' '.join(ids)}"), *steps("check")]


@case(
    "turns.virtual",
    "writer",
    "2.0",
    "Virtual refs: absolute URL to the object containing the chunk.",
    "Files of other formats that one implementation refers to cannot be read with another one.",
)
def _virtual(folder: Path) -> list[Step]:
    data = folder / "data" / "file é.bin"
    data.parent.mkdir()
    data.write_bytes(bytes(range(10)))
    url = f"file://{data.parent}/"
    more = {"at": "repository", "containers": [url]}
    reference = {"op": "virtual", "session": "$s", "path": "/a", "url": f"{url}{data.name}", "length": 2}
    lines = """
        create 2
        begin s
        edit s: zarr.json = group; a/zarr.json = array 8; a/c/3 = 0909"""
    result = [
        *(step for line in lines.strip().splitlines() for step in steps(line)),
        {**reference, "index": [0], "offset": 2},
        {**reference, "index": [2], "offset": 7, "modified": int(data.stat().st_mtime) + 1},
        *steps("commit s one"),
        *both("read main /a 0203 - 0708 0909"),
        *steps("1: change two: a/c/1 = 0a0a"),
        *both("read main /a 0203 0a0a 0708 0909"),
        *steps("check"),
    ]
    return [step | more for step in result]


KINDS = ["node", "amend", "move", "branch", "reset", "tag", "untag", "drop", "collect"]


class Model:
    """What a repository holds after a walk: refs, nodes and values."""

    def __init__(self) -> None:
        self.snapshots: dict[str, tuple[list[str], dict[str, list[str]]]] = {"root": ([], {})}
        self.branches = {"main": "root"}
        self.tags: dict[str, str] = {}
        self.deleted: set[str] = set()
        #: The commits that moved a node: a session that sets values cannot amend them.
        self.moves: set[str] = set()
        self.lines: list[str] = []

    def commit(self, branch: str, lines: str, arrays: dict[str, list[str]], *, amend: bool = False) -> None:
        id, tip = f"s{len(self.snapshots)}", self.branches[branch]
        history = self.snapshots[tip][0]
        self.snapshots[id] = ([id, *(history[1:] if amend else history)], arrays)
        self.branches[branch] = id
        if amend:
            self.lines += [f"begin b{id} {branch}", f"edit b{id}: {lines}", f"amend b{id} {id}"]
        else:
            self.lines.append(f"change {id} {branch}: {lines}")

    def step(self, chance: random.Random) -> None:
        """Make one change that must succeed."""
        branch = chance.choice(sorted(self.branches))
        tip = self.branches[branch]
        arrays = {name: list(chunks) for name, chunks in self.snapshots[tip][1].items()}
        name = chance.choice("abdef")
        kind = chance.choice(["chunk"] * 6 + KINDS)
        if not self.snapshots[tip][0]:
            self.commit(branch, "zarr.json = group", {})
        elif kind == "amend" and tip in self.moves:
            return
        elif kind == "move" and name in arrays and "f" not in arrays:
            arrays["f"] = arrays.pop(name)
            self.commit(branch, f"/{name} > /f", arrays)
            self.moves.add(self.branches[branch])
        elif kind == "collect":
            self.lines.append("collect before=4102444800000000")
        elif kind in ("chunk", "amend") and name in arrays:
            at, data = chance.randrange(4), f"{chance.randrange(1, 256):02x}" * chance.choice((2, 600))
            is_deleted = arrays[name][at] != "-" and chance.random() < 0.3
            line = f"- {name}/c/{at}" if is_deleted else f"{name}/c/{at} = {data}"
            arrays[name][at] = "-" if is_deleted else data
            self.commit(branch, line, arrays, amend=kind == "amend")
        elif kind == "node" and name in arrays:
            del arrays[name]
            self.commit(branch, f"- {name}", arrays)
        elif kind in ("node", "chunk"):
            self.commit(branch, f"{name}/zarr.json = array 8", {**arrays, name: ["-"] * 4})
        elif kind == "branch" and name not in self.branches:
            self.branches[name] = tip
            self.lines.append(f"branch-create name={name} snapshot=${tip}")
        elif kind == "reset" and len(self.snapshots[tip][0]) > 1:
            self.branches[branch] = self.snapshots[tip][0][1]
            self.lines.append(f"branch-reset name={branch} snapshot=${self.branches[branch]}")
        elif kind == "tag" and name not in self.tags and name not in self.deleted:
            self.tags[name] = tip
            self.lines.append(f"tag-create name={name} snapshot=${tip}")
        elif kind == "untag" and name in self.tags:
            del self.tags[name]
            self.deleted.add(name)
            self.lines.append(f"tag-delete name={name}")
        elif kind == "drop" and branch != "main":
            del self.branches[branch]
            self.lines.append(f"branch-delete name={branch}")

    def expectations(self) -> list[str]:
        refs = [f"{name}={id}" for name, id in self.branches.items()]
        lines = ["refs " + " ".join([*refs, *(f"tag:{name}={id}" for name, id in self.tags.items())])]
        for name, id in [*self.branches.items(), *((f"tag:{name}", id) for name, id in self.tags.items())]:
            history, arrays = self.snapshots[id]
            lines.append(f"log {name} {' '.join(history)}")
            lines.append(
                f"nodes {name} {'/ ' if history else ''}" + " ".join(f"/{each}*" for each in sorted(arrays))
            )
            lines += [f"read {name} /{array} {' '.join(chunks)}" for array, chunks in arrays.items()]
        return lines


def walk(seed: int, count: int = 60) -> list[Step]:
    """Return a random walk of changes, each by one of the implementations, and what both must find."""
    chance, model, result = random.Random(seed), Model(), steps("create 2")
    for _ in range(count):
        lines = len(model.lines)
        while len(model.lines) == lines:
            model.step(chance)
        who = chance.randrange(2)
        for line in model.lines[lines:]:
            result += steps(f"{who}: {line}")
        if chance.random() < 0.1:
            result += [step for line in model.expectations() for step in steps(f"{1 - who}: {line}")]
    return [*result, *(step for line in model.expectations() for step in both(line)), *steps("check")]


for _seed in range(3):

    def _walk(folder: Path, seed: int = _seed) -> list[Step]:
        return walk(seed)

    _why = "A sequence of operations that nobody thought of damages the repository."
    case(f"turns.walk.{_seed}", "maintainer", "2.0", RULE, _why)(_walk)
