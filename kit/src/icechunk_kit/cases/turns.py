"""Two implementations write one repository in turns: sequences that are too long for text."""

from __future__ import annotations

import random

from icechunk_kit.case import Step
from icechunk_kit.cases.repositories import Builder, line
from icechunk_kit.cases.script import steps


def both(lines: list[str]) -> list[Step]:
    """Return the steps of lines for each of the two implementations."""
    return [step for text in lines for who in range(2) for step in steps(f"{who}: {text}")]


KINDS = [*["chunk"] * 6, "node", "amend", "move", "branch", "reset", "tag", "untag", "drop", "collect"]


class Model:
    """What a repository holds after a walk: refs, nodes and values."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.snapshots: dict[str, tuple[list[str], dict[str, list[str]]]] = {"root": ([], {})}
        self.branches, self.tags = {"main": "root"}, dict[str, str]()
        #: The names of deleted tags, and the commits that moved a node: only such a session could amend them.
        self.deleted, self.moves = set[str](), set[str]()

    def commit(self, branch: str, change: str, arrays: dict[str, list[str]], kind: str = "") -> list[str]:
        id, tip = f"s{len(self.snapshots)}", self.branches[branch]
        history = self.snapshots[tip][0]
        self.snapshots[id] = ([id, *(history[1:] if kind == "amend" else history)], arrays)
        self.branches[branch] = id
        if kind == "amend":
            return [f"begin b{id} {branch}", f"edit b{id}: {change}", f"amend b{id} {id}"]
        return [f"change {id} {branch}: {change}"]

    def step(self) -> list[str]:
        """Make one change that must succeed, and return its lines. Without lines there is no such change."""
        branch = self.chance.choice(sorted(self.branches))
        tip = self.branches[branch]
        history, old = self.snapshots[tip]
        arrays = {name: list(chunks) for name, chunks in old.items()}
        name, kind = self.chance.choice("abdef"), self.chance.choice(KINDS)
        if not history:
            return self.commit(branch, "zarr.json = group", {})
        if kind in ("chunk", "amend", "node") and not (kind == "amend" and tip in self.moves):
            return self.change(branch, name, kind, arrays)
        if kind == "move" and name in arrays and "f" not in arrays:
            arrays["f"] = arrays.pop(name)
            lines = self.commit(branch, f"/{name} > /f", arrays)
            self.moves.add(self.branches[branch])
            return lines
        if kind == "collect":
            return ["collect before=4102444800000000"]
        if kind == "branch" and name not in self.branches:
            self.branches[name] = tip
            return [f"branch-create name={name} snapshot=${tip}"]
        if kind == "reset" and len(history) > 1:
            self.branches[branch] = history[1]
            return [f"branch-reset name={branch} snapshot=${history[1]}"]
        if kind == "tag" and name not in {*self.tags, *self.deleted}:
            self.tags[name] = tip
            return [f"tag-create name={name} snapshot=${tip}"]
        if kind == "untag" and name in self.tags:
            del self.tags[name]
            self.deleted.add(name)
            return [f"tag-delete name={name}"]
        if kind == "drop" and branch != "main":
            del self.branches[branch]
            return [f"branch-delete name={branch}"]
        return []

    def change(self, branch: str, name: str, kind: str, arrays: dict[str, list[str]]) -> list[str]:
        """Change a chunk of an array, or make or delete an array."""
        if name not in arrays:
            new = {**arrays, name: ["-"] * 4}
            return [] if kind == "amend" else self.commit(branch, f"{name}/zarr.json = array 8", new)
        if kind == "node":
            del arrays[name]
            return self.commit(branch, f"- {name}", arrays)
        place = self.chance.randrange(4)
        data = f"{self.chance.randrange(1, 256):02x}" * self.chance.choice((2, 600))
        data = "-" if arrays[name][place] != "-" and self.chance.random() < 0.3 else data
        text = f"- {name}/c/{place}" if data == "-" else f"{name}/c/{place} = {data}"
        arrays[name][place] = data
        return self.commit(branch, text, arrays, kind)

    def expectations(self) -> list[str]:
        names = {**self.branches, **{f"tag:{name}": id for name, id in self.tags.items()}}
        lines = ["refs " + " ".join(f"{name}={id}" for name, id in names.items())]
        for name, id in names.items():
            history, arrays = self.snapshots[id]
            paths = [*(["/"] if history else []), *(f"/{each}*" for each in sorted(arrays))]
            lines += [f"log {name} {' '.join(history)}", f"nodes {name} {' '.join(paths)}"]
            lines += [f"read {name} /{array} {' '.join(chunks)}" for array, chunks in arrays.items()]
        return lines


@line
def walk(builder: Builder, seed: str, count: str) -> list[Step]:
    """Return a random walk of changes, each by one of the implementations, and what both must find."""
    model, result = Model(int(seed)), steps("create 2")
    for _ in range(int(count)):
        lines = model.step()
        who = model.chance.randrange(2)
        result += [step for text in lines for step in steps(f"{who}: {text}")]
        if model.chance.random() < 0.1:
            result += [step for text in model.expectations() for step in steps(f"{1 - who}: {text}")]
    return result + both(model.expectations())
