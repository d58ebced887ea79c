"""Maintenance of repositories that the kit writes: what no writer of today makes."""

from __future__ import annotations

from pathlib import Path

from icechunk_kit.case import Step, case
from icechunk_kit.cases.script import steps
from icechunk_kit.files import FIRST_TIME, MINUTE, Node, Repository, encode_id, identifier, inline, native

COLLECT = "collect before=4102444800000000"
DELETES = "Deletes — the storage system SHOULD support deleting files, required for garbage collection."


def script(text: str) -> list[Step]:
    return [step for line in text.strip().splitlines() for step in steps(line)]


@case(
    "collect.shared",
    "maintainer",
    "2.0",
    "Chunk references from multiple arrays can be stored in the same manifest.",
    "A clean-up deletes a manifest or a chunk file because one of its arrays is gone.",
)
def _shared(folder: Path) -> list[Step]:
    repository = Repository(folder)
    packed = {"chunk_id": identifier("packed"), "length": 2}
    repository.put(f"chunks/{encode_id(identifier('packed'))}", bytes(range(8)))
    repository.put(f"chunks/{encode_id(identifier('orphan'))}", bytes(8))
    nodes = [
        Node(f"/{name}", [4], [2], refs={(1,): packed | {"offset": at}}) for name, at in (("a", 2), ("b", 4))
    ]
    first = repository.commit(nodes, shared=True)
    repository.commit(nodes[:1], shared=True)
    repository.branches["main"] = first
    repository.write()
    return script(f"""
        change two: - a
        expire before=4102444800000000 -> ["*", "*"]
        {COLLECT}
        files 1 chunks/
        nodes main / /b*
        read main /b - 0405""")


@case(
    "collect.detached", "maintainer", "2.0", DELETES, "A snapshot that no branch has keeps its space forever."
)
def _detached(folder: Path) -> list[Step]:
    repository = Repository(folder)
    first = repository.commit([Node("/a", [4], [2], refs={(0,): native(b"\1\2")})])
    repository.commit([Node("/a", [4], [2], refs={(0,): native(b"\3\4")})], branch=None, parent=first)
    repository.write()
    return script(f"""
        files 2 chunks/
        {COLLECT}
        files 1 chunks/
        files 2 snapshots/
        files 2 transactions/
        read main /a 0102 -
        log main *""")


@case(
    "collect.missing",
    "maintainer",
    "2.0",
    DELETES,
    "A clean-up that cannot read a manifest deletes its chunks.",
)
def _missing(folder: Path) -> list[Step]:
    repository = Repository(folder)
    repository.commit([Node("/a", [4], [2], refs={(0,): native(b"\1\2")})])
    repository.write()
    manifest = next((folder / "manifests").iterdir())
    data = manifest.read_bytes()
    manifest.write_bytes(data[: len(data) // 2])
    return [*script(COLLECT + " -> error"), *script("files 1 chunks/")]


@case(
    "expire.times",
    "maintainer",
    "2.0",
    "silent",
    "Times of two branches are mixed: a branch loses versions that are newer than the bound.",
)
def _times(folder: Path) -> list[Step]:
    repository = Repository(folder)
    ids = [encode_id(repository.commit([], message=f"{number}")) for number in range(4)]
    repository.branches["dev"] = repository.snapshots[2]["id"]
    ids += [encode_id(repository.commit([], message=f"dev {number}", branch="dev")) for number in range(3)]
    repository.write()
    before = FIRST_TIME + 4 * MINUTE  # the time of the fourth commit, the tip of main
    return script(
        f"""
        expire before={before} -> {sorted(ids[:3])!r}
        log main m
        log dev d3 d2 d1""".replace("'", '"')
    )


@case(
    "upgrade",
    "maintainer",
    "1",
    "There is no longer a refs prefix, branches and tags are stored in the repo info object.",
    "After the change of the version, a tag, a branch or the history is gone.",
)
def _upgrade(folder: Path) -> list[Step]:
    repository = Repository(folder, version=1)
    first = repository.commit([Node("/a", [4], [2], refs={(0,): inline(b"\1\2")})], message="first")
    repository.commit([Node("/a", [4], [2], refs={(0,): native(b"\3\4")})], message="second")
    repository.branches["dev"] = first
    repository.tags["v"] = first
    repository.write()
    repository.put("refs/tag.old/ref.json", b'{"snapshot":"1CECHNKREP0F1RSTCMT0"}')
    repository.put("refs/tag.old/ref.json.deleted", b"")
    return script("""
        log main second first
        upgrade
        log main second first
        log dev first
        refs main=second dev=first tag:v=first
        read main /a 0304 -
        read tag:v /a 0102 -
        tag-create name=old snapshot=1CECHNKREP0F1RSTCMT0 -> error exists
        change third: a/c/1 = 0909
        read main /a 0304 0909
        begin b
        edit b: a/c/0 = 0909
        amend b fourth
        log main fourth second first
        kit.files key=repo$ -> ["repo"]
        upgrade -> error state
        check""")
