"""Nodes, references to chunks and manifests of right repositories."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import zstandard

from icechunk_kit.case import ERROR, GONE, Step, ask, case, read
from icechunk_kit.files import Document, Node, Repository, inline, native, virtual

# A case is a paragraph, not a column of arguments.
# fmt: off

ONE, TWO = b"\1\2\3", b"\4\5\6"

def tree(id: str, rule: str, why: str, nodes: Sequence[Node], *steps: Step, version: str = "2.0",
    bounds: Document | None = None, **arguments: Any) -> None:
    """Register a case of one commit. The arguments are those of `Repository.commit`."""

    @case(id, "reader", version, rule, why, **(bounds or {}))
    def _(folder: Path) -> list[Step]:
        repository = Repository(folder, 1 if version == "1" else 2)
        repository.commit(nodes, **arguments)
        repository.write()
        return list(steps)

def a(refs: dict[tuple[int, ...], Document], **more: Any) -> Node:
    return Node("/a", shape=[12], chunks=[3], refs=refs, **more)

def first(edit: Callable[[Document], object]) -> Callable[[Document], object]:
    """Edit the first reference of a manifest."""
    return lambda document: edit(document["arrays"][0]["refs"][0])

KIND = "Each array is empty or wrong when a kind of reference is not read."
NULL = "A reader shows values where nobody wrote any, or fails."
INLINE = "the chunk data is embedded directly in the inline field"
NATIVE = "Native refs: the id of the chunk file in the repository's storage."
PACKED = "Multiple contiguous chunks from the same array in a single chunk file"
LENGTH = "The offset and length fields locate the chunk within the file."
tree("reference.inline", INLINE, KIND, [a({(1,): inline(ONE)})], read("/a", {(0,): None, (1,): ONE}))
tree("reference.native", NATIVE, KIND, [a({(1,): native(ONE)})], read("/a", {(0,): None, (1,): ONE}))
tree("reference.packed", PACKED, "Chunks get the bytes of their neighbours.",
    [a({(at,): native(ONE + TWO) | {"offset": 3 * at, "length": 3} for at in (0, 1)})],
    read("/a", {(0,): ONE, (1,): TWO}))
tree("reference.packed.middle", LENGTH, "Chunks get the bytes of their neighbours.",
    [a({(0,): native(ONE, before=b"other", after=b"bytes")})], read("/a", {(0,): ONE}))
tree("reference.packed.arrays", "Chunks from multiple different arrays in the same file",
    "Chunks get the bytes of their neighbours.", [Node("/b", [3], [3],
    refs={(0,): native(ONE + TWO) | {"offset": 3, "length": 3}}),
    a({(0,): native(ONE + TWO) | {"length": 3}})], read("/a", {(0,): ONE}), read("/b", {(0,): TWO}))
tree("reference.inline.large", INLINE, "Writers choose the threshold of inline chunks.",
    [a({(0,): inline(bytes(range(256)) * 400)})], read("/a", {(0,): bytes(range(256)) * 400}))
tree("reference.kinds", "Chunk references come in three types, encoded in the same flatbuffers table",
    "A reader decides the kind once for an array, not for each reference.",
    [a({(0,): inline(ONE), (1,): native(TWO), (3,): inline(TWO)})],
    read("/a", {(3,): TWO, (2,): None, (1,): TWO, (0,): ONE}), ask("count", 3, path="/a"))
tree("reference.native.missing", NATIVE,
    "Lost data look like fill values: a reader must not answer 404 with nothing.",
    [a({(0,): {"chunk_id": b"no such file", "length": 3}})], read("/a", {(0,): None}, expect=ERROR))
BEYOND: dict[str, Document] = {
    "length": {"length": 4},
    "offset": {"offset": 3, "length": 3},
    "far": {"offset": 2**40, "length": 3},
    "overflow": {"offset": 2**64 - 2, "length": 3},
    "huge": {"length": 2**62},
}
for _id, _fields in BEYOND.items():
    tree(f"reference.native.beyond.{_id}", LENGTH,
        "A chunk that is cut is used as if it were whole, or a reader takes memory for a false length.",
        [a({(0,): native(ONE) | _fields})], read("/a", {(0,): None}, expect=ERROR))
ONE_SET = "Exactly one of these three sets MUST be populated."
tree("reference.none", ONE_SET, "A damaged reference looks like a chunk of zero bytes.", [a({(0,): {}})],
    read("/a", {(0,): None}, expect=ERROR))
for _id, _fields in {"inline": inline(TWO), "location": {"location": "s3://no/where"}}.items():
    tree(f"reference.two.{_id}", ONE_SET,
        "Two readers give two values for one chunk. An error and the chunk file are accepted.",
        [a({(0,): native(ONE) | _fields})], read("/a", {(0,): None}, expect={"any": [[ONE.hex()], ERROR]}))

SECONDS = 1_700_000_000
URL = "Virtual refs: absolute URL to the object containing the chunk."
TIME = "Seconds since the Unix epoch."
DICTIONARY = b"".join(f"file:///data/{n:03}/chunk-{n}.bin ".encode() for n in range(90))
COMPRESSED = "zstd dictionary-compressed location bytes, as an alternative to the location field"

def compressed(url: str) -> Document:
    compressor = zstandard.ZstdCompressor(dict_data=zstandard.ZstdCompressionDict(DICTIONARY))
    return {"compressed_location": compressor.compress(url.encode())}

def dictionary(document: Document) -> Document:
    return dict.__ior__(document, {"location_dictionary": DICTIONARY, "compression_algorithm": 1})

#: Identifier, the fields of the reference for a URL, an edit of the manifest, what comes, the rule, and why.
VIRTUAL: tuple[tuple[str, Callable[[str], Document], Any, Any, str, str], ...] = (
    ("plain", lambda url: {"location": url}, None, ONE, URL, KIND),
    ("algorithm-default", lambda url: {"location": url},
        lambda document: document.pop("compression_algorithm"), ONE, "compression_algorithm: uint8 = 1",
        "Old manifests have no dictionary and no field: nothing is compressed there."),
    ("compressed", compressed, dictionary, ONE, COMPRESSED, "Large virtual data sets cannot be read."),
    ("compressed-default", compressed,
        lambda document: dictionary(document).pop("compression_algorithm"), ONE,
        "compression_algorithm: uint8 = 1",
        "Builders of FlatBuffers leave out a field that has its default."),
    ("compressed-none", lambda url: {"compressed_location": url.encode()},
        lambda document: document.update(compression_algorithm=0), ONE,
        "0 = none (compressed_location contains raw bytes)", KIND),
    ("compressed-alone", compressed, None, ERROR, "1 = zstd dictionary compression", "A wrong object."),
    ("compressed-bomb",
        lambda url: {"compressed_location": zstandard.compress(url.encode() + b"/" * 10_000_000)}, dictionary,
        ERROR, "silent", "A small file takes all memory."),
    ("missing", lambda url: {"location": url + ".no"}, None, ERROR, URL, "Lost data look like fill values."),
    ("beyond", lambda url: {"location": url, "length": 99}, None, ERROR, LENGTH, "A cut chunk looks whole."),
    ("relative", lambda url: {"location": "data.bin"}, None, ERROR, URL, "A reader opens a file of its own."),
    ("modified-same", lambda url: {"location": url, "checksum_last_modified": SECONDS}, None, ONE, TIME,
        "A right object is refused."),
    ("modified-later", lambda url: {"location": url, "checksum_last_modified": SECONDS - 60}, None,
        {"error": ["modified"]}, TIME, "An object that another program wrote anew gives garbage."),
    ("etag-other", lambda url: {"location": url, "checksum_etag": '"no such tag"'}, None,
        {"error": ["modified"]}, "Virtual refs: optional checksums for the target object.",
        "An object that another program wrote anew gives garbage."),
)

def containers(repository: Repository, name: str | None = None) -> list[str]:
    """Write the object of the virtual chunks and the configuration that allows it. Return the prefixes."""
    path = repository.folder / "open" / "data.bin"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"head" + ONE + b"tail")
    os.utime(path, (SECONDS, SECONDS))
    (repository.folder / "secret.bin").write_bytes(b"head" + TWO + b"tail")
    prefix = f"{path.parent.as_uri()}/"
    store = {"local_file_system": str(path.parent)}
    repository.config = {"virtual_chunk_containers": {prefix: {"name": name, "url_prefix": prefix,
        "store": store}}}
    return [prefix]

for _id, _fields_of, _edit, _expect, _rule, _why in VIRTUAL:

    @case(f"reference.virtual.{_id}", "reader", "2.1" if "compressed" in _id else "2.0", _rule, _why)
    def _(folder: Path, fields: Any = _fields_of, edit: Any = _edit, expect: Any = _expect) -> list[Step]:
        repository = Repository(folder)
        prefixes = containers(repository)
        reference = virtual("", 4, 3) | fields(f"{prefixes[0]}data.bin")
        if "compressed_location" in reference:
            del reference["location"]
        repository.commit([a({(0,): reference})], edit={"Manifest": edit} if edit else None)
        repository.write()
        expect = [expect.hex()] if isinstance(expect, bytes) else expect
        return [read("/a", {(0,): None}, containers=prefixes, expect=expect)]

@case("reference.virtual.named", "reader", "2.1", "silent", "Data sets that moved are read by name.")
def _named(folder: Path) -> list[Step]:
    repository = Repository(folder)
    prefixes = containers(repository, name="here")
    repository.commit([a({(0,): virtual("vcc://here/data.bin", 4, 3)})])
    repository.write()
    return [read("/a", {(0,): ONE}, containers=prefixes)]

for _id, _url in {"outside": "{}secret.bin", "traversal": "{}open/../secret.bin"}.items():

    @case(f"reference.virtual.{_id}", "reader", "2.0", "silent",
        "A repository of a stranger reads files of the user that the user did not allow.")
    def _(folder: Path, url: str = _url) -> list[Step]:
        repository = Repository(folder)
        prefixes = containers(repository)
        repository.commit([a({(0,): virtual(url.format(f"{folder.as_uri()}/"), 4, 3)})])
        repository.write()
        return [read("/a", {(0,): None}, containers=prefixes, expect=ERROR)]

# Arrays.
GRID = "0-based chunk coordinates, one per array dimension"
EXTENTS = "One ChunkIndexRange per dimension, in the same order as the array's dimensions."
tree("array.scalar", EXTENTS, "Arrays without dimensions: a coordinate of an empty list.",
    [Node("/a", [], [], refs={(): inline(ONE)})], read("/a", {(): ONE}), ask("count", 1, path="/a"))
tree("array.scalar.empty", EXTENTS, NULL, [Node("/a", [], [])], read("/a", {(): None}))
tree("array.no-chunks", EXTENTS, NULL, [a({})], read("/a", {(0,): None}), ask("count", 0, path="/a"))
tree("array.zero-length", EXTENTS, "An axis that grows begins with no element.", [Node("/a", [0, 4], [1, 2])],
    ask("count", 0, path="/a"), ask("metadata", path="/a"))
tree("array.edge", GRID, "The last chunk of an axis is lost.",
    [Node("/a", [7, 5], [3, 2], refs={(2, 2): inline(ONE), (0, 2): inline(TWO)})],
    read("/a", {(2, 2): ONE, (0, 2): TWO, (2, 0): None}), ask("count", 2, path="/a"))
tree("array.many-dimensions", "MUST be sorted in ascending lexicographic order of ChunkRef.index",
    "A search in another order does not find chunks that exist.", [Node("/a", [300, 2, 3, 2], [1, 1, 1, 1],
    refs={(n, n % 2, n % 3, 1): inline(bytes([n % 251])) for n in range(0, 300, 7)})],
    read("/a", {(n, n % 2, n % 3, 1): None if n % 7 else bytes([n % 251]) for n in (0, 7, 8, 252, 259, 294)}))
tree("array.index.high", "index: [uint32]", "Coordinates above 2^31 become negative numbers.",
    [Node("/a", [2**32 - 1], [1], refs={(n,): inline(ONE) for n in (3, 2**31 + 1, 2**32 - 2)})],
    read("/a", {(2**31 + 1,): ONE, (2**32 - 2,): ONE, (1,): None}))
tree("array.length.high", "array_length: uint64", "Long axes: a length that does not fit 32 or 53 bits.",
    [Node("/a", [2**62], [2**40], refs={(4,): inline(ONE)})], read("/a", {(4,): ONE}))
RECTILINEAR = {"chunk_grid": {"name": "rectilinear",
    "configuration": {"kind": "inline", "chunk_shapes": [[1, 3, 2], [4, 2]]}}}

def rectilinear(node: Document) -> None:
    node["node_data"][1]["shape_v2"] = [{"array_length": 6, "num_chunks": 3},
        {"array_length": 6, "num_chunks": 2}]

tree("array.rectilinear", "instead of storing the chunk_length in the snapshot, the num_chunks is now stored",
    "Grids of months and of tiles of unequal size.", [Node("/a", [6, 6], [2, 3],
    refs={(2, 1): inline(ONE), (1, 0): inline(TWO)}, metadata=RECTILINEAR, edit=rectilinear)],
    read("/a", {(2, 1): ONE, (1, 0): TWO, (0, 1): None}), version="2.1")
tree("array.names", "The name of this dimension. Absent if the dimension is unnamed.",
    "One dimension without a name stops the reader.",
    [Node("/a", [2, 2], [1, 1], names=["x", None], refs={(0, 1): inline(ONE)})], read("/a", {(0, 1): ONE}))
tree("array.shrunken", "silent",
    "The reference leaves chunks outside of a new, smaller shape in the manifest.",
    [Node("/a", [4], [2], refs={(0,): inline(ONE), (1,): inline(TWO), (7,): inline(b"old")})],
    read("/a", {(0,): ONE, (1,): TWO}))
tree("array.same-chunk", NATIVE, KIND,
    [Node(path, [6], [3], refs={(0,): native(ONE), (1,): native(ONE)}) for path in ("/a", "/b")],
    read("/a", {(0,): ONE, (1,): ONE}), read("/b", {(0,): ONE, (1,): ONE}))

# Manifests.
SHARED = "Chunk references from multiple arrays can be stored in the same manifest"
SPLIT = "a single array's chunks can be spread across multiple manifests"
_shared = [Node(f"/{n}", [9], [3], refs={(n % 3,): inline(bytes([n])), (0,): inline(bytes([n]))})
    for n in range(40)]
tree("manifest.shared", SHARED, "An array gets the chunks of another one.", _shared,
    *(read(f"/{n}", {(n % 3,): bytes([n])}) for n in range(0, 40, 6)), ask("count", 2, path="/7"),
    shared=True)
_boxes = [[(low, low + 2), (0, 4)] for low in (0, 2, 4)]
tree("manifest.split", SPLIT, "All chunks but those of the first manifest are lost.", [Node("/a", [6, 4],
    [1, 1], refs={(i, j): inline(bytes([i, j])) for i in range(6) for j in range(4)}, split=_boxes)],
    read("/a", {(i, 3): bytes([i, 3]) for i in range(6)}), ask("count", 24, path="/a"))
tree("manifest.split.gaps", "Defines which chunk coordinates this manifest covers.",
    "Coordinates in no box give an error, or the chunk of another box.", [Node("/a", [100, 100], [1, 1],
    refs={(0, 0): inline(ONE), (50, 3): inline(TWO)}, split=[[(0, 1), (0, 1)], [(50, 51), (3, 4)]])],
    read("/a", {(0, 0): ONE, (50, 3): TWO, (0, 3): None, (50, 0): None, (99, 99): None}))
tree("manifest.split.exclusive", "exclusive to: uint32",
    "The first chunk of the second box is looked for in the first.",
    [Node("/a", [4], [1], refs={(1,): inline(ONE), (2,): inline(TWO)}, split=[[(0, 2)], [(2, 4)]])],
    read("/a", {(0,): None, (1,): ONE, (2,): TWO, (3,): None}))
tree("manifest.extents.wide", "Defines which chunk coordinates this manifest covers.",
    "A box may be wider than its chunks.",
    [Node("/a", [100], [1], refs={(3,): inline(ONE)}, split=[[(0, 100)]])],
    read("/a", {(0,): None, (3,): ONE, (99,): None}))

def _order(document: Document) -> None:
    manifests = document["nodes"][1]["node_data"][1]["manifests"]
    manifests.reverse()

tree("manifest.split.order", "silent", "The specification gives no order of the manifests of an array.",
    [Node("/a", [4], [1], refs={(n,): inline(bytes([n])) for n in range(4)}, split=[[(0, 2)], [(2, 4)]])],
    read("/a", {(n,): bytes([n]) for n in range(4)}), edit={"Snapshot": _order})

@case("manifest.missing", "reader", "2.0", EXTENTS, "Lost data look like fill values.")
def _manifest_missing(folder: Path) -> list[Step]:
    repository = Repository(folder)
    repository.commit([a({(0,): inline(ONE)})])
    repository.write()
    for path in (folder / "manifests").iterdir():
        path.unlink()
    return [read("/a", {(0,): None, (3,): None}, expect=ERROR)]

@case("manifest.two-snapshots", "reader", "2.0", EXTENTS, "Each commit shares what it does not change.")
def _two_snapshots(folder: Path) -> list[Step]:
    repository = Repository(folder)
    lists: Document = {}
    old = Node("/a", [6], [3], refs={(0,): inline(ONE)})
    repository.commit([old], edit={"Snapshot": lists.update})
    repository.commit([old, Node("/b", [3], [3])],
        edit={"Snapshot": lambda document: document.update(nodes=[*lists["nodes"], document["nodes"][2]],
        manifest_files_v2=lists["manifest_files_v2"])})
    repository.write()
    return [read("/a", {(0,): ONE}), ask("list", "*")]

# Nodes.
BYTES = "For instance, /a/b < /a-b in component-wise order, but /a-b < /a/b in byte order."
NAMES = ("/Z", "/a", "/a-b", "/a-b/x", "/a.b", "/a/b", "/a/b/c", "/a0", "/b", "/é")
tree("node.order", BYTES,
    "The text asks for the order of components. The reference writes and searches that of bytes: it is here.",
    [Node(path) for path in NAMES], ask("list", [{"path": path, "type": "group"} for path in ("/", *NAMES)]),
    *(ask("metadata", {"node_type": "group", "zarr_format": 3, "attributes": {}}, path=path)
    for path in NAMES))

def components(document: Document) -> None:
    document["nodes"].sort(key=lambda node: node["path"].split("/"))

tree("node.order.components", BYTES,
    "Writers until 1.1.2 follow the text. A search in the order of bytes does not find `/a-b` there.",
    [Node(path) for path in NAMES], *(ask("metadata", path=path) for path in NAMES),
    edit={"Snapshot": components})
UTF8 = "Path segments MAY contain any valid UTF-8 characters except `/`."
for _id, _path in {"unicode": "/données/日本/🧊", "decomposed": "/e\u0301", "space": "/with space/ lead",
    "punctuation": "/a%20b/#?&=+~!@$*();,'\"", "dots": "/...", "long": "/" + "n" * 200,
    "deep": "/d" * 60}.items():
    _parents = ["/".join(_path.split("/")[: n + 1]) for n in range(1, _path.count("/"))]
    tree(f"node.path.{_id}", UTF8, "A reader that changes a name does not find the node.",
        [*map(Node, _parents), Node(_path, [3], [3], refs={(0,): inline(ONE)})], read(_path, {(0,): ONE}),
        ask("list", [*({"path": p, "type": "group"} for p in ["/", *_parents]),
        {"path": _path, "type": "array"}]))
tree("node.root-array", "formally a repository can be any valid Zarr hierarchy, from a single Array",
    "A repository that is one array cannot be read.", [Node("/", [3], [3], refs={(0,): inline(ONE)})],
    read("/", {(0,): ONE}), ask("list", [{"path": "/", "type": "array"}]))
tree("node.absent", "silent", NULL, [Node("/b")], ask("metadata", GONE, path="/a"))
VERBATIM = "the contents of its zarr.json, stored as a UTF-8 JSON byte string"
METADATA: dict[str, Document] = {
    "attributes": {"attributes": {"deep": [{"a": None, "é": [1.5, -0.0, 1e300, "\u2028"]}], "": {}}},
    "numbers": {"attributes": {"big": 2**53 + 1, "bigger": 2**64 - 1, "negative": -(2**63)}},
    "unknown": {"attributes": {}, "extension": {"must_understand": False, "x": [1]}},
    "large": {"attributes": {"text": "x" * 1_000_000}},
}
for _id, _metadata in METADATA.items():
    _node = Node("/g", metadata=_metadata)
    tree(f"node.metadata.{_id}", VERBATIM, "Metadata of the user change when they are read.", [_node],
        ask("metadata", _node.zarr_json, path="/g"))
tree("node.metadata.space", VERBATIM, "Tools compare the text of documents.", [Node("/g",
    edit=lambda node: node.update(user_data=b' {\n"node_type" : "group","zarr_format":3 ,"a":"\\u00e9"} '))],
    ask("metadata", {"node_type": "group", "zarr_format": 3, "a": "é"}, path="/g"))
