"""Version 1 of the format: references are files, and a snapshot holds the id of its parent."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from icechunk_kit.case import ERROR, GONE, Step, ask, read
from icechunk_kit.cases.history import ROOT, changes, chunks, log, node, repo, snapshot, value
from icechunk_kit.files import Document, Node, Repository, encode_id, inline, native

# A case is a paragraph, not a column of arguments.
# fmt: off

OLD = "Each year of data that writers 0.2 to 1.1 wrote is lost to the user."
REFS = "There is no longer a refs prefix, branches and tags are stored in the repo info object."
INSIDE = "In V1 snapshots: MUST be present for all snapshots except the initial one."
SHAPE = "The authoritative chunk size comes from the Zarr metadata in user_data, not from this field."

@repo("version1.read", REFS, OLD, "1")
def _read(repository: Repository) -> list[Step]:
    refs = {(0, 0): inline(b"\1"), (1, 2): native(b"\2", before=b"x"), (2, 1): native(b"\3")}
    repository.commit([Node("/g"), Node("/g/a", [5, 9], [2, 3], refs=refs, names=["x", None])])
    return [read("/g/a", {(0, 0): b"\1", (1, 2): b"\2", (2, 1): b"\3", (0, 1): None}),
        ask("list", [{"path": path, "type": "*"} for path in ("/", "/g", "/g/a")]),
        ask("count", 3, path="/g/a")]

@repo("version1.history", INSIDE, OLD, "1")
def _history(repository: Repository) -> list[Step]:
    ids = [repository.commit([node(n)], message=f"m{n}") for n in (1, 2)]
    repository.branches["dev.2"], repository.tags["v1.0"] = ids[0], ids[0]
    three = repository.commit([node(3)], message="m3", branch="dev.2")
    return [log(["m2", "m1", ROOT]), log(["m3", "m1", ROOT], ref={"branch": "dev.2"}),
        value(1, ref={"tag": "v1.0"}), value(3, ref=snapshot(three)), ask("refs",
        {"branches": {"main": "*", "dev.2": encode_id(three)}, "tags": {"v1.0": encode_id(ids[0])}})]

@repo("version1.diff", "TransactionLog", OLD, "1")
def _diff(repository: Repository) -> list[Step]:
    one = repository.commit([node(1)], log={"new_arrays": [node(1).id]})
    two = repository.commit([node(2)], log={"updated_chunks": chunks("/a", (0,), (1,))})
    expect = changes(chunks={"/a": [[0], [1]]})
    return [ask("diff", expect, **{"from": encode_id(one), "to": encode_id(two)})]

@repo("version1.deleted-tag", "silent", "A file beside that of the tag says that the tag is deleted.", "1")
def _tombstone(repository: Repository) -> list[Step]:
    repository.tags |= dict.fromkeys(("v1", "v2"), repository.commit([node(1)]))
    repository.write()
    repository.put("refs/tag.v1/ref.json.deleted", b"")
    return [ask("refs", {"branches": {"main": "*"}, "tags": {"v2": "*"}}),
        ask("log", GONE, ref={"tag": "v1"}), value(1, ref={"tag": "v2"})]

@repo("version1.deleted-branch", "silent", "A file system keeps the empty folder of a deleted branch.", "1")
def _deleted(repository: Repository) -> list[Step]:
    repository.commit([node(1)])
    (repository.folder / "refs" / "branch.gone").mkdir(parents=True)
    repository.write()
    return [ask("refs", {"branches": {"main": "*"}, "tags": {}}), ask("log", GONE, ref={"branch": "gone"}),
        value(1)]

@repo("version1.ref.text", "silent", "A file of JSON may hold spaces.", "1")
def _text(repository: Repository) -> list[Step]:
    id = repository.commit([node(1)])
    text = json.dumps({"snapshot": encode_id(id)}, indent=2) + "\n"
    repository.put("refs/branch.main/ref.json", text.encode())
    return [value(1)]

for _id, _content in {"empty": "", "cut": '{"snapshot":"1CECH', "other": '{"snap":"1CECHNKREP0F1RSTCMT0"}',
    "list": "[]", "number": '{"snapshot":7}', "short": '{"snapshot":"1CECHNKREP0F1RSTCMT"}',
    "traversal": '{"snapshot":"../refs/branch.main/ref.json"}'}.items():

    @repo(f"version1.ref.{_id}", "silent", "A damaged reference shows another version.", "1")
    def _(repository: Repository, content: str = _content) -> list[Step]:
        repository.commit([node(1)])
        repository.put("refs/branch.main/ref.json", content.encode())
        return [value(1, expect=ERROR)]

@repo("version1.root.random", "silent", "Writers before 0.2.17 give the first snapshot a random id.", "1")
def _root(repository: Repository) -> list[Step]:
    first = repository.commit([], message="first",
        edit={"Snapshot": lambda document: document.pop("parent_id")})
    repository.commit([node(1)], message="m1")
    return [log(["m1", "first"]), ask("list", "*", ref=snapshot(first)), value(1)]

@repo("version1.shape.inaccurate", SHAPE, "Arrays are cut in chunks of a wrong size.", "1")
def _shape(repository: Repository) -> list[Step]:
    def edit(each: Document) -> None:
        each["node_data"][1]["shape"] = [(9, 3)]

    array = Node("/a", [9], [4], refs={(2,): inline(b"\7"), (0,): inline(b"\5")}, edit=edit)
    repository.commit([array])
    return [read("/a", {(0,): b"\5", (1,): None, (2,): b"\7"}), ask("metadata", array.zarr_json, path="/a")]

@repo("version1.no-log", "A transaction id is written for the first commit that initializes the repo.", OLD,
    "1")
def _no_log(repository: Repository) -> list[Step]:
    root = repository.branches["main"]
    (repository.folder / "transactions" / encode_id(root)).unlink()
    one = repository.commit([node(1)], log={"new_arrays": [node(1).id]})
    return [log(["commit", ROOT]),
        ask("diff", changes(new=["/a"]), **{"from": encode_id(root), "to": encode_id(one)})]

@repo("version1.config", "There is no longer a config.yaml file", "A configuration stops the reader.", "1")
def _config(repository: Repository) -> list[Step]:
    repository.commit([node(1)])
    text = "inline_chunk_threshold_bytes: 12\nmanifest: null\ncompression:\n  level: 1\n"
    repository.put("config.yaml", text.encode())
    return [value(1)]

@repo("version1.rewritten", "silent", "An expiry of version 1 writes a snapshot anew with another parent.",
    "1")
def _expired(repository: Repository) -> list[Step]:
    root = repository.branches["main"]
    one = repository.commit([node(1)], message="m1")
    repository.commit([node(2)], message="m2",
        edit={"Snapshot": lambda document: document.update(parent_id=root)})
    (repository.folder / "snapshots" / encode_id(one)).unlink()
    return [log(["m2", ROOT]), value(2), ask("list", ERROR, ref=snapshot(one))]

def _parent(of: Callable[[bytes], bytes]) -> Callable[[Document], object]:
    return lambda document: document.update(parent_id=of(document["id"]))

for _id, _of in {"itself": bytes, "missing": lambda id: b"no such file"}.items():

    @repo(f"version1.parent.{_id}", INSIDE, "A reader never ends, or takes all memory.", "1")
    def _(repository: Repository, of: Any = _of) -> list[Step]:
        repository.commit([node(1)], edit={"Snapshot": _parent(of)})
        return [ask("log", ERROR)]

@repo("version1.beside", "silent", "A migration left old references.", "2.0")
def _beside(repository: Repository) -> list[Step]:
    old = repository.commit([node(1)], message="old")
    repository.commit([node(2)], message="new")
    text = json.dumps({"snapshot": encode_id(old)})
    repository.put("refs/branch.main/ref.json", text.encode())
    repository.put("refs/branch.gone/ref.json", text.encode())
    repository.write()
    return [value(2), log(["new", "old", ROOT]), ask("refs", {"branches": {"main": "*"}, "tags": {}})]

@repo("version1.migrated", REFS, "The snapshots of a migrated repository stay in version 1.", "2.0")
def _migrated(repository: Repository) -> list[Step]:
    old = Repository(repository.folder, 1)
    one = old.commit([node(1)], message="m1", log={"new_arrays": [node(1).id]})
    repository.snapshots = old.snapshots
    repository.branches["main"] = one
    repository.log("RepoMigratedUpdate", from_version=1, to_version=2)
    repository.commit([node(2)], message="m2")
    return [value(1, ref=snapshot(one)), value(2), log(["m2", "m1", ROOT]),
        ask("list", "*", ref=snapshot(one))]

@repo("version1.absent", "Read $ROOT/repo", "An empty folder is not a repository.", "1")
def _absent(repository: Repository) -> list[Step]:
    (repository.folder / "refs" / "branch.other").mkdir(parents=True)
    return [ask("refs", GONE)]
