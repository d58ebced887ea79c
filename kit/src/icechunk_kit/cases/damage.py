"""Files that are damaged, or hostile. A reader must refuse them in bounded time and memory."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

from icechunk_kit.case import ERROR, Step, ask, case, read
from icechunk_kit.cases.history import changes, chunks
from icechunk_kit.files import Change, Document, Edit, Node, Repository, encode_id, identifier, inline, native

# A case is a paragraph, not a column of arguments.
# fmt: off

ONE = b"inline"
NODES = [
    Node("/a", [4], [1], refs={(0,): inline(ONE), (1,): native(b"\2\3")}, names=["x"]),
    Node("/b", [2, 2], [1, 1], refs={(0, 1): inline(b"\4")}),
    Node("/g"),
]
LOG = {"new_groups": [NODES[2].id], "updated_chunks": chunks("/a", (0,), (3,))}
#: The request that needs each kind of file, with the answer for a right file.
STEPS: dict[str, Step] = {
    "Repo": ask("refs", {"branches": {"main": "*"}, "tags": {}}),
    "Snapshot": ask("list", [{"path": path, "type": "*"} for path in ("/", "/a", "/b", "/g")]),
    "Manifest": read("/a", {(0,): ONE, (1,): b"\2\3"}),
    "TransactionLog": ask("diff", changes(new=["/g"], chunks={"/a": [[0], [3]]})),
}
CRASH = "A damaged file ends the program, or gives values that nobody wrote."
BOMB = "A small file takes all memory, or all time, of the machine."
PAYLOAD = "The remainder of the file is the flatbuffers payload"

def damaged(folder: Path, kind: str, edit: Edit | None = None, at: str = "", **header: Any) -> Step:
    """Write a repository in which files of one kind are damaged. Return the step that must fail."""
    repository = Repository(folder / at)
    one = repository.commit([NODES[0]])
    two = repository.commit(NODES, log=LOG, edit={kind: edit} if edit else None, header={kind: header},
        shared=True)
    repository.write(edit if kind == "Repo" else None, **(header if kind == "Repo" else {}))
    ends = {"from": encode_id(one), "to": encode_id(two)} if kind == "TransactionLog" else {}
    return STEPS[kind] | ends | {"at": at, "expect": ERROR}

# Truncation of each kind of file. Of a buffer that is cut, a reader may read what is whole.
for _kind, _step in STEPS.items():
    for _where, _expect in {"file": ERROR, "body": {"any": [ERROR, _step["expect"]]}}.items():

        @case(f"damage.truncated.{_kind.lower()}.{_where}", "reader", "2.0", PAYLOAD, CRASH)
        def _(folder: Path, kind: str = _kind, where: str = _where, expect: Any = _expect) -> list[Step]:
            def cut(share: int) -> Change:
                return lambda data: data[: len(data) * share // 16]

            steps = [damaged(folder, kind, None, str(share), **{where: cut(share)}) for share in range(16)]
            return [step | {"expect": expect} for step in steps]

# Words: each word of a buffer is replaced. Any answer may come, but it comes in time, and is no panic.
for _kind in STEPS:
    for _word in (0, 0xFFFFFFF0):

        @case(f"damage.word.{_kind.lower()}.{_word:x}", "reader", "2.0", PAYLOAD, CRASH)
        def _(folder: Path, kind: str = _kind, word: int = _word) -> list[Step]:
            def replace(place: int) -> Change:
                return lambda data: data[:place] + struct.pack("<I", word) + data[place + 4 :]

            places = range(0, 600, 4 if kind in ("Snapshot", "Manifest") else 12)
            steps = [damaged(folder, kind, at=str(place), body=replace(place)) for place in places]
            return [step | {"expect": {"any": ["*", ERROR]}} for step in steps]

def rle(size: int, *, declared: int | None = None) -> Change:
    """Return a compression that gives a frame of zeros: 4 bytes for each 128 KiB."""
    head = b"\x28\xb5\x2f\xfd"
    head += b"\x00\x38" if declared is None else b"\xc0\x38" + struct.pack("<Q", declared)
    block = 128 * 1024
    blocks = [struct.pack("<I", (block << 3) | 2)[:3] + b"\0"] * (size // block)
    blocks[-1] = struct.pack("<I", (block << 3) | 3)[:3] + b"\0"
    return lambda body: head + b"".join(blocks)

GIBIBYTE = 2**30
#: A FlatBuffer has at most 2 GiB: a reader can stop there, also where the frame declares no size.
BOMBS = (
    ("declared", rle(2**20, declared=2**50)),
    ("declared-small", rle(3 * GIBIBYTE, declared=1000)),
    ("undeclared", rle(3 * GIBIBYTE)),
)
for _kind in ("Repo", "Snapshot", "Manifest"):
    for _id, _frame in BOMBS:

        @case(f"damage.bomb.{_kind.lower()}.{_id}", "reader", "2.0", "silent", BOMB, mebibytes=2304)
        def _(folder: Path, kind: str = _kind, frame: Change = _frame) -> list[Step]:
            return [damaged(folder, kind, compress=frame)]

def set_(*path: str | int, **fields: Any) -> Edit:
    """Return an edit of the table at a path of keys and positions."""

    def edit(document: Document) -> None:
        value: Any = document
        for key in path:
            value = value[key]
        value.update(fields)

    return edit

def text(old: bytes, new: bytes) -> Document:
    def change(body: bytes) -> bytes:
        assert old in body
        return body.replace(old, new)

    return {"body": change}

def longer(content: bytes) -> Document:
    """Return a change of a buffer: the vector with this content gets a length of 2^31."""
    old = struct.pack("<I", len(content)) + content
    return text(old, struct.pack("<I", 2**31) + content)

A, B = NODES[0].id, NODES[1].id
RIGHT = STEPS["Manifest"]["expect"]
EITHER = {"any": [ERROR, RIGHT]}
ARRAY = ("nodes", 1, "node_data", 1)
MANIFEST = ("arrays", sorted([A, B]).index(A))
#: Identifier, kind of file, edit or header, what comes, the rule, and why.
ROWS: tuple[tuple[str, str, Edit | Document, Any, str, str], ...] = (
    ("path.utf-8", "Snapshot", text(b"/a\0", b"\xff\xfe\0"), ERROR, "Node paths are UTF-8 strings", CRASH),
    ("branch.utf-8", "Repo", text(b"main\0", b"\xffain\0"), ERROR, "name: string (required)", CRASH),
    ("union.unknown", "Snapshot", set_("nodes", 1, node_data=("GroupNodeData", {}, 9)), ERROR,
        "union NodeData", CRASH),
    ("union.none", "Snapshot", set_("nodes", 1, node_data=("GroupNodeData", {}, 0)), ERROR, "union NodeData",
        CRASH),
    ("update.unknown", "Repo", set_("latest_updates", 0, update_type=("GCRanUpdate", {}, 99)),
        {"any": ["*", ERROR]}, "union UpdateType", "A kind of update of a later version ends the program."),
    ("vector.beyond", "Manifest", longer(ONE), ERROR, PAYLOAD, CRASH),
    ("vector.beyond", "Snapshot", longer(b"/b"), ERROR, PAYLOAD, CRASH),
    ("root.offset", "Snapshot", {"body": lambda b: b"\xff\xff\xff\x7f" + b[4:]}, ERROR, PAYLOAD, CRASH),
    ("root.zero", "Snapshot", {"body": lambda b: bytes(4) + b[4:]}, ERROR, PAYLOAD, CRASH),
    ("root.zero", "Manifest", {"body": lambda b: bytes(4) + b[4:]}, ERROR, PAYLOAD, CRASH),
    ("root.zero", "Repo", {"body": lambda b: bytes(4) + b[4:]}, ERROR, PAYLOAD, CRASH),
    ("zeros", "Snapshot", {"body": lambda b: bytes(len(b))}, ERROR, PAYLOAD, CRASH),
    ("zeros", "Manifest", {"body": lambda b: bytes(len(b))}, ERROR, PAYLOAD, CRASH),
    ("zeros", "Repo", {"body": lambda b: bytes(len(b))}, ERROR, PAYLOAD, CRASH),
    ("user-data", "Snapshot", set_("nodes", 1, user_data=b"{"), {"any": ["*", ERROR]}, "silent", CRASH),
    ("extents.rank", "Snapshot", set_(*ARRAY, "manifests", 0, extents=[(0, 4), (0, 4)]),
        {"any": [ERROR, [None, None], RIGHT]}, "One ChunkIndexRange per dimension", CRASH),
    ("index.rank", "Manifest", set_(*MANIFEST, "refs", 0, index=[0, 0]), {"any": [ERROR, [None, "0203"]]},
        "silent", CRASH),
    ("index.empty", "Manifest", set_(*MANIFEST, "refs", 0, index=[]), {"any": [ERROR, [None, "0203"]]},
        "silent", CRASH),
    ("index.beyond", "Manifest", set_(*MANIFEST, "refs", 1, index=[9]), {"any": [ERROR, [ONE.hex(), None]]},
        "silent", CRASH),
    ("size.zero", "Snapshot", lambda d: [i.update(size_bytes=0) for i in d["manifest_files_v2"]], EITHER,
        "silent", CRASH),
    ("size.large", "Snapshot", lambda d: [i.update(size_bytes=2**40) for i in d["manifest_files_v2"]], EITHER,
        "Total serialized size of the manifest in bytes.", "A reader takes memory for a false size."),
    ("size.small", "Snapshot", lambda d: [i.update(size_bytes=50) for i in d["manifest_files_v2"]], EITHER,
        "Total serialized size of the manifest in bytes.", "A part of a manifest is taken for the whole."),
    ("info.absent", "Snapshot", lambda d: d.update(manifest_files_v2=[]), EITHER,
        "MUST be populated in V2 snapshots.", "Chunks are lost without an error."),
    ("same-path", "Snapshot", lambda d: d["nodes"].append(d["nodes"][1]), {"any": ["*", ERROR]}, "silent",
        CRASH),
    ("no-slash", "Snapshot", set_("nodes", 3, path="g"), {"any": ["*", ERROR]},
        "MUST start with `/` (absolute).", CRASH),
    ("rank", "Snapshot", lambda d: d["nodes"][1]["node_data"][1].update(shape_v2=[]), {"any": ["*", ERROR]},
        "V2 shape representation: one entry per dimension.", CRASH),
)
for _id, _kind, _change, _expect, _rule, _why in ROWS:

    @case(f"damage.{_kind.lower()}.{_id}", "reader", "2.0", _rule, _why)
    def _(folder: Path, kind: str = _kind, change: Any = _change, expect: Any = _expect) -> list[Step]:
        header = change if isinstance(change, dict) else {}
        step = damaged(folder, kind, None if header else change, **header)
        if RIGHT in expect.get("any", ()):  # damage of a snapshot that a read of chunks meets
            step = STEPS["Manifest"]
        return [step | {"expect": expect}]

@case("damage.manifest.repeated", "reader", "2.0", "silent", BOMB, mebibytes=1536)
def _repeated(folder: Path) -> list[Step]:
    """Two thousand arrays share one list of references: a reader that copies them needs 200 million."""

    repository = Repository(folder)
    refs = {(n,): inline(b"\1") for n in range(3)}
    repository.commit([Node("/a", [4], [1], refs=refs)],
        header={"Manifest": {"body": lambda body: shared_lists(2000, 100_000)}})
    repository.write()
    return [read("/a", {(0,): None}, expect={"any": [ERROR, ["01"], [None]]})]

def shared_lists(arrays: int, refs: int) -> bytes:
    """Return a manifest with one reference, which stands in `arrays` times `refs` places."""
    out = bytearray(struct.pack("<I4sHHHHi", 20, b"Ichk", 8, 20, 4, 16, 12))
    out += identifier("manifest", 12) + struct.pack("<I", 4)
    start = len(out)
    out += struct.pack("<I", arrays) + bytes(4 * arrays)
    vtable = len(out)
    out += struct.pack("<HHHH", 8, 16, 4, 12)
    table = len(out)
    out += struct.pack("<i8sI", table - vtable, Node("/a").id, 4)
    for number in range(arrays):
        place = start + 4 + 4 * number
        struct.pack_into("<I", out, place, table - place)
    vector = len(out)
    out += struct.pack("<I", refs) + bytes(4 * refs)
    vtable = len(out)
    out += struct.pack("<HHHH", 8, 12, 4, 8)
    table = len(out)
    out += (
        struct.pack("<iII", table - vtable, 8, 12) + struct.pack("<II", 1, 0) + struct.pack("<I4s", 1, b"\1")
    )
    places = range(vector + 4, vector + 4 + 4 * refs, 4)
    struct.pack_into(f"<{refs}I", out, vector + 4, *(table - place for place in places))
    return bytes(out)

# The file of another object.
for _kind, _name in {"Snapshot": "snapshots", "Manifest": "manifests"}.items():

    @case(f"damage.{_kind.lower()}.other-file", "reader", "2.0", "Also encoded in the file name.", CRASH)
    def _(folder: Path, kind: str = _kind, name: str = _name) -> list[Step]:
        repository = Repository(folder)
        repository.commit([NODES[0]])
        repository.commit([Node("/c", [4], [1], refs={(0,): inline(b"\7")})])
        repository.write()
        if kind == "Snapshot":
            files = [folder / name / encode_id(each["id"]) for each in repository.snapshots[1:]]
        else:
            files = list((folder / name).iterdir())
        contents = [file.read_bytes() for file in files]
        files[0].write_bytes(contents[1])
        files[1].write_bytes(contents[0])
        step = read("/c", {(0,): None}, expect={"any": [ERROR, [None]]})
        return [ask("list", ERROR) if kind == "Snapshot" else step]

def laughs(levels: int) -> bytes:
    """Return a FlexBuffer of vectors: each one holds the one before it twice."""
    out = bytearray(b"\1\7\4")  # one element, the integer 7
    for level in range(levels):
        start = len(out) - (2 if level == 0 else 4)
        out += bytes([2, len(out) + 1 - start, len(out) + 2 - start, 0x28, 0x28])
    return bytes(out + bytes([4, 0x28, 1]))

#: Values of metadata, and whether they are of version 1. A vector that holds itself has no end.
VALUES = {
    "cycle": (b"\x01\x00\x28\x02\x28\x01", "2.0"),
    "doubled": (laughs(40), "2.0"),
    "garbage": (b"\xff\xff\xff\xff", "2.0"),
    "empty": (b"", "2.0"),
    "size": (b"\x08\xff\xff\xff\x7f\x28\x04\x2a\x04", "2.0"),
    "depth": (b"\x91" * 1_000_000, "1"),
    "length": (b"\xdd\xff\xff\xff\xff\xc0", "1"),
}
for _id, (_value, _version) in VALUES.items():

    @case(f"damage.properties.{_id}", "reader", _version, "A JSON-compatible value", BOMB)
    def _(folder: Path, value: bytes = _value, version: str = _version) -> list[Step]:
        items = [{"name": "key", "value": value}]
        repository = Repository(folder, int(version[0]))
        repository.commit([], edit={"Snapshot": lambda document: document.update(metadata=items)})
        repository.write(lambda document: [info.update(metadata=items) for info in document["snapshots"]])
        return [ask("properties", ERROR)]

@case("damage.repo.time", "reader", "2.0", "Non-leap microseconds since Jan 1, 1970 UTC.", CRASH)
def _time(folder: Path) -> list[Step]:
    damaged(folder, "Repo", lambda d: [info.update(flushed_at=2**64 - 1) for info in d["snapshots"]])
    return [ask("log", {"any": ["*", ERROR]}), STEPS["Manifest"]]

@case("damage.snapshot.depth", "reader", "2.0", "stored as a UTF-8 JSON byte string", BOMB)
def _depth(folder: Path) -> list[Step]:
    damaged(folder, "Snapshot", set_("nodes", 2, user_data=b'{"a":' * 200_000))
    return [ask("metadata", {"any": ["*", ERROR]}, path="/b"), STEPS["Manifest"]]

@case("damage.repo.updates.cycle", "reader", "2.0", "forming a linked list", BOMB)
def _updates(folder: Path) -> list[Step]:
    backup = "repo.30729294865234.S0CHS5WSF158RN937BP0"
    damaged(folder, "Repo", set_(repo_before_updates=backup))
    (folder / "overwritten").mkdir()
    (folder / "overwritten" / backup).write_bytes((folder / "repo").read_bytes())
    return [ask("updates", ERROR), STEPS["Manifest"]]

@case("damage.repo.updates.outside", "reader", "2.0", "under the overwritten/ prefix", CRASH)
def _outside(folder: Path) -> list[Step]:
    damaged(folder / "inside", "Repo", set_(repo_before_updates="../../outside"))
    (folder / "outside").write_bytes((folder / "inside" / "repo").read_bytes())
    return [ask("updates", ERROR, at="inside")]
