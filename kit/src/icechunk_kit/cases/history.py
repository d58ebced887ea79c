"""The repo file: references to snapshots, ancestry, properties, and what changed between snapshots."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from flatbuffers import flexbuffers  # type: ignore[import-untyped]

from icechunk_kit.case import ERROR, GONE, Step, ask, case, read
from icechunk_kit.files import FIRST_TIME, ROOT_ID, Document, Node, Repository, encode_id, identifier, inline
from icechunk_kit.schema import TABLES, UNIONS

# A case is a paragraph, not a column of arguments.
# fmt: off

ROOT = "Repository initialized"
PARENT = "Index of this snapshot's parent in the Repo.snapshots list"
LATER = "Users see versions in a wrong order, or versions of another branch."

def node(value: int, path: str = "/a") -> Node:
    return Node(path, [3], [1], refs={(0,): inline(bytes([value]))})

def value(number: int, path: str = "/a", **arguments: Any) -> Step:
    return read(path, {(0,): bytes([number])}, **arguments)

def log(messages: list[str], **arguments: Any) -> Step:
    return ask("log", [{"id": "*", "message": each, "time": "*"} for each in messages], **arguments)

def snapshot(id: bytes) -> dict[str, str]:
    return {"snapshot_id": encode_id(id)}

type Fill = Callable[[Repository], list[Step]]

def repo(id: str, rule: str, why: str, version: str = "2.0", **bounds: Any) -> Callable[[Fill], Fill]:
    """Register a function that fills a repository, which is written afterwards if it is not yet."""

    def register(fill: Fill) -> Fill:
        @case(id, "reader", version, rule, why, **bounds)
        def _(folder: Path) -> list[Step]:
            repository = Repository(folder, 1 if version == "1" else 2)
            steps = fill(repository)
            if not (folder / "repo").exists() and not (folder / "refs").exists():
                repository.write()
            return steps

        return fill

    return register

def commits(repository: Repository, count: int, **arguments: Any) -> list[bytes]:
    return [repository.commit([node(n)], message=f"m{n}", **arguments) for n in range(1, count + 1)]

@repo("history.log", PARENT, LATER)
def _log(repository: Repository) -> list[Step]:
    one, two, three = commits(repository, 3)
    repository.branches["dev"] = one
    four = repository.commit([node(4)], message="m4", branch="dev")
    return [log(["m3", "m2", "m1", ROOT]), log(["m4", "m1", ROOT], ref={"branch": "dev"}),
        log(["m2", "m1", ROOT], ref=snapshot(two)), value(4, ref={"branch": "dev"}),
        value(3, ref=snapshot(three)), value(4, ref=snapshot(four))]

@repo("history.times", "Non-leap microseconds since Jan 1, 1970 UTC.", "Times of versions are wrong.")
def _times(repository: Repository) -> list[Step]:
    times = [FIRST_TIME + 123_457, 4_102_444_800_000_001]
    ids = [repository.commit([], message="m", time=time) for time in times]
    entries = [{"id": encode_id(id), "message": "m", "time": time} for id,
        time in zip(ids, times, strict=True)]
    root = {"id": encode_id(ROOT_ID), "message": ROOT, "time": FIRST_TIME}
    return [ask("log", [*reversed(entries), root])]

@repo("history.clock", PARENT, "Clocks of two writers differ: parents give the order, not times.")
def _clock(repository: Repository) -> list[Step]:
    for number, hours in enumerate((5, 1, 3)):
        repository.commit([], message=f"m{number}", time=FIRST_TIME + hours * 3_600_000_000)
    return [log(["m2", "m1", "m0", ROOT])]

@repo("history.messages", "Commit message.", "Messages of people are any text.")
def _messages(repository: Repository) -> list[Step]:
    messages = ["", "two\nlines\t", "ünïcode 🧊 \u2028", "x" * 300_000, "\u0000 and more"]
    for message in messages:
        repository.commit([], message=message)
    return [log([*reversed(messages), ROOT])]

@repo("history.root.empty", "creating a new empty snapshot file", "A new repository cannot be opened.")
def _empty(repository: Repository) -> list[Step]:
    return [ask("list", []), log([ROOT]), ask("metadata", GONE, path="/"),
        ask("refs", {"branches": {"main": "1CECHNKREP0F1RSTCMT0"}, "tags": {}})]

@repo("history.root.other", "-1 means no parent (the initial snapshot)", "Old roots have random ids.")
def _root(repository: Repository) -> list[Step]:
    one = repository.commit([node(1)], message="m1")
    repository.snapshots = repository.snapshots[1:]
    repository.snapshots[0]["parent"] = None
    return [log(["m1"]), value(1, ref=snapshot(one))]

@repo("history.detached",
    "If the specific snapshot ID is known, a client can open it directly in read only mode.",
    "Work that was flushed but not committed is lost.")
def _detached(repository: Repository) -> list[Step]:
    commits(repository, 1)
    other = repository.commit([node(9)], message="flushed", branch=None)
    repository.log("NewDetachedSnapshotUpdate", new_snap_id=other)
    return [log(["m1", ROOT]), log(["flushed", "m1", ROOT], ref=snapshot(other)),
        value(9, ref=snapshot(other)), value(1)]

@repo("history.amended", "CommitAmendedUpdate", "The replaced version stands twice in the log.")
def _amended(repository: Repository) -> list[Step]:
    one, two = commits(repository, 2)
    three = repository.commit([node(3)], message="m3", parent=one)
    repository.updates.pop(0)
    repository.log("CommitAmendedUpdate", branch="main", previous_snap_id=two, new_snap_id=three)
    updates = ["CommitAmendedUpdate", "NewCommitUpdate", "NewCommitUpdate", "RepoInitializedUpdate"]
    return [log(["m3", "m1", ROOT]), value(3), value(2, ref=snapshot(two)),
        ask("updates", [{"kind": kind, "time": "*"} for kind in updates])]

def changes(**lists: Any) -> Document:
    """Return the expected diff: empty lists, unless the arguments say otherwise."""
    return {"new": [], "deleted": [], "updated": [], "chunks": {}, "moved": []} | lists

def chunks(path: str, *indexes: tuple[int, ...]) -> list[Document]:
    coordinates = [{"coords": list(index)} for index in indexes]
    return [{"node_id": Node(path).id, "chunks": coordinates}]

@repo("history.expired", "silent", "After an expiry, a diff loses changes.", "2.1")
def _expired(repository: Repository) -> list[Step]:
    one = repository.commit([node(1)], message="m1",
        log={"new_arrays": [node(1).id], "updated_chunks": chunks("/a", (0,))})
    two = repository.commit([node(2)], message="m2", log={"updated_chunks": chunks("/a", (1,))})
    three = repository.commit([node(3)], message="m3", log={"updated_chunks": chunks("/a", (0,), (2,))})
    repository.snapshots = [each for each in repository.snapshots if each["id"] not in (one, two)]
    repository.snapshots[-1] |= {"parent": ROOT_ID, "info": {"pruned_ancestor_tx_logs": [one, two]}}
    for id in (one, two):
        (repository.folder / "snapshots" / encode_id(id)).unlink()
    repository.updates = repository.updates[:1] + repository.updates[-1:]
    repository.log("ExpirationRanUpdate")
    return [log(["m3", ROOT]), value(3), value(1, ref=snapshot(one), expect=GONE), ask("diff",
        changes(new=["/a"], chunks={"/a": [[0], [1], [2]]}), **{"from": encode_id(ROOT_ID),
        "to": encode_id(three)})]

@repo("history.reset", "BranchResetUpdate", "Users see the version that somebody took back.")
def _reset(repository: Repository) -> list[Step]:
    one, two = commits(repository, 2)
    repository.branches["main"] = one
    repository.log("BranchResetUpdate", name="main", previous_snap_id=two)
    three = repository.commit([node(3)], message="m3")
    return [log(["m3", "m1", ROOT]), value(3, ref=snapshot(three)), value(2, ref=snapshot(two))]

@repo("history.moved", "Stable across snapshots — a node keeps its id for its lifetime.",
    "A move loses chunks.")
def _moved(repository: Repository) -> list[Step]:
    group, array = Node("/g"), node(7, "/g/a")
    one = repository.commit([group, array], message="m1")
    names = {"/g": "/h", "/g/a": "/h/a"}

    def rename(document: Document) -> None:
        for each in document["nodes"]:
            each["path"] = names.get(each["path"], each["path"])

    moves: list[Document] = [{"from": old, "to": new, "node_id": Node(old).id, "node_type": number}
        for number, (old, new) in enumerate(names.items())]
    two = repository.commit([group, array], log={"moved_nodes": moves}, edit={"Snapshot": rename})
    return [value(7, "/h/a"), ask("list", [{"path": path, "type": "*"} for path in ("/", "/h", "/h/a")]),
        ask("metadata", GONE, path="/g/a"), value(7, "/g/a", ref=snapshot(one)), ask("diff",
        changes(moved=[["/g", "/h"], ["/g/a", "/h/a"]]), **{"from": encode_id(one), "to": encode_id(two)})]

@repo("history.restored", PARENT, "A node that was deleted and came back is an array of its own.")
def _restored(repository: Repository) -> list[Step]:
    repository.commit([node(1)], message="m1")
    two = repository.commit([], message="m2", log={"deleted_arrays": [node(1).id]})
    repository.commit([node(1)], message="m3", log={"new_arrays": [node(1).id]})
    return [value(1), ask("metadata", GONE, path="/a", ref=snapshot(two)), log(["m3", "m2", "m1", ROOT])]

@repo("diff.kinds", "A transaction log file records which nodes and chunks were modified",
    "Users miss changes.")
def _diff(repository: Repository) -> list[Step]:
    one = repository.commit([Node("/old"), Node("/g"), node(1), node(1, "/b")])
    paths = {"new": ("/new", "/c"), "deleted": ("/old", "/b"), "updated": ("/g", "/a")}
    kinds = ("groups", "arrays")
    log_: Document = {f"{what}_{kind}": [Node(path).id] for what, pair in paths.items()
        for kind, path in zip(kinds, pair, strict=True)}
    log_["updated_chunks"] = chunks("/a", (0,), (2,))
    two = repository.commit([Node("/g"), Node("/new"), node(2), node(2, "/c")], log=log_)
    expect = changes(new=["/c", "/new"], deleted=["/b", "/old"], updated=["/a", "/g"],
        chunks={"/a": [[0], [2]]})
    return [ask("diff", expect, **{"from": encode_id(one), "to": encode_id(two)})]

@repo("diff.several", "Chunk ref changes made in this transaction.", "A diff shows one commit of several.")
def _diff_several(repository: Repository) -> list[Step]:
    one = repository.commit([node(1)])
    repository.commit([node(2)], log={"updated_chunks": chunks("/a", (1,))})
    three = repository.commit([node(2), Node("/g")], log={"new_groups": [Node("/g").id]})
    expect = changes(new=["/g"], chunks={"/a": [[1]]})
    return [ask("diff", expect, **{"from": encode_id(one), "to": encode_id(three)})]

# Branches and tags.
SORTED = "MUST be sorted in ascending UTF-8 byte order of Ref.name."

@repo("refs.order", SORTED, "A search does not find names that exist.")
def _refs(repository: Repository) -> list[Step]:
    names = ["Z", "a", "a-b", "a.b", "a/b", "a0", "é", "日本", "🧊", "with space"]
    for number, name in enumerate(names):
        repository.branches["main"] = ROOT_ID
        repository.tags[name] = repository.branches[name] = repository.commit([node(number)], message=name,
            branch="main")
    return [ask("refs",
        {"branches": dict.fromkeys([*names, "main"], "*"), "tags": dict.fromkeys(names, "*")}),
        *(log([name, ROOT], ref={kind: name}) for name in names for kind in ("branch", "tag"))]

@repo("refs.same-name", "Branches and tags are both stored as Ref entries.", "A branch hides a tag.")
def _same(repository: Repository) -> list[Step]:
    one, two = commits(repository, 2)
    repository.branches["v1"], repository.tags["v1"] = two, one
    return [value(2, ref={"branch": "v1"}), value(1, ref={"tag": "v1"})]

@repo("refs.absent", SORTED, "A mistake in a name shows another version.")
def _absent(repository: Repository) -> list[Step]:
    repository.tags["v1"] = commits(repository, 1)[0]
    unknown = ({"branch": "mai"}, {"branch": "v1"}, {"tag": "main"}, {"tag": "v"}, {"branch": "zz"})
    never = encode_id(identifier("never"))
    return [*(ask("log", GONE, ref=ref) for ref in unknown), ask("list", GONE, ref={"snapshot_id": never}),
        ask("list", {"error": ["not-found", "invalid"]}, ref={"snapshot_id": "no id"})]

@repo("refs.deleted-tag", "Names of deleted tags.", "A tag that was taken back is used.")
def _deleted(repository: Repository) -> list[Step]:
    repository.tags["v2"] = commits(repository, 1)[0]
    repository.write(lambda document: document.update(deleted_tags=["v1", "v3"]))
    return [ask("refs", {"branches": {"main": "*"}, "tags": {"v2": "*"}}),
        ask("log", GONE, ref={"tag": "v1"}), value(1, ref={"tag": "v2"})]

# Fields of the repo file that a reader does not need.
REPO: dict[str, tuple[Document, str]] = {
    "status.read-only": ({"status": {"availability": 1, "set_at": 5}},
        "ReadOnly: writers stop, readers go on."),
    "flags": ({"enabled_feature_flags": [3, 4], "disabled_feature_flags": [5]}, "Flags are of writers."),
    "flags.unknown": ({"enabled_feature_flags": [3, 999]}, "A later version has flags that are not known."),
    "metadata": ({"metadata": [{"name": "owner", "value": bytes(flexbuffers.Dumps({"a": [1]}))}]},
        "Attributes of a repository."),
    "metadata.empty": ({"metadata": []}, "An empty list is no absent list."),
    "config": ({"config": bytes(flexbuffers.Dumps({"inline_chunk_threshold_bytes": 12,
        "later": {"x": [None]}}))}, "A later version has keys that are not known."),
    "lists.empty": ({"latest_updates": []}, "The log of updates may be elsewhere."),
}
for _id, (_fields, _why) in REPO.items():

    @case(f"repo.{_id}", "reader", "2.0", "Every read operation starts by fetching this file.", _why)
    def _(folder: Path, fields: Document = _fields) -> list[Step]:
        repository = Repository(folder)
        commits(repository, 1)
        repository.write(lambda document: document.update(fields))
        return [value(1), log(["m1", ROOT])]

# The log of updates.
FIELDS = {"string": "main", "ObjectId12": ROOT_ID, "u8": 1, "u16": 3, "bool": True,
    "RepoStatus": {"availability": 1, "set_at": FIRST_TIME}}
UPDATES = [(kind, {name: FIELDS[type_] for name, type_, _ in TABLES[kind]}) for kind in UNIONS["UpdateType"]]

@repo("updates.kinds", "union UpdateType", "One entry that is not known hides the whole log.", version="2.1")
def _kinds(repository: Repository) -> list[Step]:
    for kind, fields in UPDATES[1:]:
        repository.log(kind, **fields)
    kinds = [{"kind": kind, "time": "*"} for kind, _ in reversed(UPDATES)]
    return [ask("updates", kinds)]

@repo("updates.chain",
    "Path to the previous repo info file (in the overwritten/ prefix), forming a linked list",
    "The older part of the log of updates is lost.")
def _chain(repository: Repository) -> list[Step]:
    backup = "repo.30729294865234.S0CHS5WSF158RN937BP0"
    commits(repository, 2)
    repository.write()
    (repository.folder / "overwritten").mkdir()
    (repository.folder / "repo").rename(repository.folder / "overwritten" / backup)
    commits(repository, 1)
    repository.write(lambda document: document.update(latest_updates=document["latest_updates"][:1],
        repo_before_updates=backup))
    kinds = [*["NewCommitUpdate"] * 3, "RepoInitializedUpdate"]
    return [ask("updates", [{"kind": kind, "time": "*"} for kind in kinds])]

# Properties of snapshots.
class Key(str):
    """A key of an object. The writer of FlexBuffers in Python encodes keys as ASCII without this class."""

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        return str.encode(self)

JSON: dict[str, Any] = {
    "null": None,
    "boolean": [True, False],
    "integers": [0, -1, 127, -128, 255, 32768, -(2**31), 2**32, 2**53 + 1, 2**63 - 1, -(2**63)],
    "numbers": [0.5, -2.25, 1e30, 5e-324, 0.1],
    "text": ["", "ascii", "é日🧊", "x" * 70_000],
    "lists": [[], [[]], [1, "a", None, {"b": [2]}]],
    "objects": {"": {}, "z": {"a": {"b": {"c": 1}}}, Key("é"): "key"},
}
VALUE = {"2.0": "In V2: encoded as FlexBuffers (https://flatbuffers.dev/flexbuffers.html).",
    "1": "In V1: encoded as MessagePack (https://msgpack.org/)."}
for _version, _rule in VALUE.items():
    for _id, _value in JSON.items():

        @repo(f"properties.{_version}.{_id}", _rule, "Who made a version, and how, is shown wrong.", _version)
        def _(repository: Repository, value: Any = _value) -> list[Step]:
            repository.commit([], metadata={"key": value, "other": "x"})
            return [ask("properties", {"key": value, "other": "x"})]

def _typed(build: Callable[[Any], object]) -> bytes:
    builder = flexbuffers.Builder()
    build(builder)
    return bytes(builder.Finish())

#: Encodings of FlexBuffers that the writer of Python does not choose by itself.
TYPED: dict[str, tuple[Callable[[Any], object], Any]] = {
    "typed-integers": (lambda b: b.TypedVectorFromElements([1, -2, 300]), [1, -2, 300]),
    "typed-floats": (lambda b: b.TypedVectorFromElements([0.5, 1.5, 2.5, 3.5, 4.5]),
        [0.5, 1.5, 2.5, 3.5, 4.5]),
    "fixed-integers": (lambda b: b.FixedTypedVectorFromElements([1, 2, 3]), [1, 2, 3]),
    "indirect": (lambda b: b.VectorFromElements([0.25, 7]), [0.25, 7]),
    "float32": (lambda b: b.Float(0.25, 4), 0.25),
    "unsigned": (lambda b: b.UInt(2**64 - 1), 2**64 - 1),
}
for _id, (_build, _value) in TYPED.items():

    @case(f"properties.2.0.{_id}", "reader", "2.0", VALUE["2.0"], "Other writers choose other encodings.")
    def _(folder: Path, build: Callable[[Any], object] = _build, value: Any = _value) -> list[Step]:
        items = [{"name": "key", "value": _typed(build)}]
        repository = Repository(folder)
        repository.commit([], edit={"Snapshot": lambda document: document.update(metadata=items)})
        repository.write(lambda document: [info.update(metadata=items) for info in document["snapshots"]])
        return [ask("properties", {"key": value})]

# Damage of the lists.
@repo("repo.index.beyond", "Index into the Repo.snapshots list", "A reader shows another version, or ends.")
def _beyond(repository: Repository) -> list[Step]:
    commits(repository, 1)
    repository.write(lambda document: document["branches"][0].update(snapshot_index=99))
    return [value(1, expect=ERROR)]

#: The parent of each of three snapshots.
PARENTS: dict[str, Callable[[int], int]] = {
    "beyond": lambda number: 99,
    "largest": lambda number: 2**31 - 1,
    "cycle": lambda number: (number + 1) % 3,
    "itself": lambda number: number,
}
for _id, _parent in PARENTS.items():

    @repo(f"repo.parent.{_id}", PARENT, "A reader never ends, or takes all memory.")
    def _(repository: Repository, parent: Callable[[int], int] = _parent) -> list[Step]:
        commits(repository, 2)
        repository.write(lambda document: [info.update(parent_offset=parent(number))
            for number, info in enumerate(document["snapshots"])])
        return [ask("log", ERROR)]
