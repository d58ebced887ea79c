"""A reader that ignores one rule fails a case of this rule."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path
from types import ModuleType
from typing import Any

import icechunk_kit.cases  # noqa: F401 - registers the cases
import pytest
from icechunk_kit.case import CASES
from icechunk_kit.runner import Adapter, run

# A case is a paragraph, not a column of arguments.
# fmt: off

SOURCE = (Path(__file__).parents[1] / "adapters" / "simple_reader.py").read_text()

#: The cases that see the mutant, the text of the reader that it changes, and the new text.
MUTANTS = {
    "magic": ("header.magic.*", " and data[:12] == MAGIC", ""),
    "version": ("header.version.*", "check(version in (1, 2)", "check(True"),
    "file type": ("header.type.*", "check(type_ == kind", "check(True"),
    "no compression": ("header.compression.none", "compression in (0, 1)", "compression == 1"),
    "unknown compression": ("header.compression.unknown", "compression in (0, 1)", "True"),
    "one frame": ("header.frames.several", "piece = frame.unused_data", "piece = b''"),
    "a frame that is cut": ("header.frames.cut", "check(frame.eof", "check(True"),
    "short tables": ("header.writer.*", "if entry < self.size else 0", ""),
    "signed vtable": ("header.vtable.*", 'self.number("<i", self.place)', 'self.number("<I", self.place)'),
    "required fields": ("required.repo.*", "check(offset or not required", "check(True"),
    "bounds of vectors": ("damage.manifest.vector.beyond", "check(place + 4 + count * size <=",
        "check(True or 0 <="),
    "text": ("damage.snapshot.path.utf-8", '(self.bytes(slot, required) or b"").decode()',
        '(self.bytes(slot, required) or b"").decode(errors="replace")'),
    "padding of ids": ("reference.native", "number <<= digits", "number >>= 0 * digits"),
    "digits of ids": ("reference.native", '"0123456789ABCDEFGHJKMNPQRSTVWXYZ"',
        '"0123456789ABCDEFGHIJKLMNOPQRSTUV"'),
    "index of the parent": ("history.log", 'number = info.get(1, "<i")', 'number += info.get(1, "<i")'),
    "sign of the parent": ("history.log", 'number = info.get(1, "<i")', 'number = info.get(1, "<I")'),
    "first parent": ("history.*", "if number < 0:", "if number <= 0:"),
    "a cycle of parents": ("repo.parent.cycle", 'raise ValueError("the ancestry has no end")', "return"),
    "a parent that is none": ("repo.parent.beyond", 'check(number < len(self.ids), "a parent',
        'if number >= len(self.ids):\n                    return\n                check(True, "'),
    "a reference to none": ("repo.index.beyond", 'check(number < len(self.ids), "a reference',
        'number = min(number, 1); check(True, "'),
    "branches and tags": ("refs.same-name", '"tag": self.tags}', '"tag": self.branches}'),
    "unknown names": ("refs.absent", "{name: name})[name]", '{name: name}).get(name, self.branches["main"])'),
    "snapshots that were expired": ("history.expired", "id not in map(encode, self.ids)", "False"),
    "microseconds": ("history.times", 'info.get(2, "<Q")', 'info.get(2, "<Q") // 1000 * 1000'),
    "order of the log": ("history.clock", "*_ in ancestry]",
        "*_ in sorted(ancestry, key=lambda each: -each[2])]"),
    "older updates": ("updates.chain", "table.text(8)", '""'),
    "kinds of updates": ("updates.kinds", "UPDATES[each.get(0, 'B') - 1]", "UPDATES[each.get(0, 'B') % 16]"),
    "FlexBuffers": ("properties.2.0.text", "loads = flexbuffers.Loads if version == 2 else", "loads ="),
    "MessagePack": ("properties.1.text", " if version == 2 else msgpack.unpackb", ""),
    "id of the snapshot": ("damage.snapshot.other-file", '"12s", required=True)) == id',
        '"12s", required=True))'),
    "the newer version": ("version1.beside", 'if (self.folder / "repo").exists():',
        'if not (self.folder / "refs").exists():'),
    "deleted tags": ("version1.deleted-tag", 'if not path.with_name("ref.json.deleted").exists()', "if True"),
    "parents of version 1": ("version1.history", 'table.get(1, "12s", None)', "None"),
    "order of paths": ("node.order", "item[0].encode()", 'item[0].split("/")'),
    "paths are bytes": ("node.path.decomposed", "return {node.text(1, required=True)",
        'return {__import__("unicodedata").normalize("NFC", node.text(1))'),
    "union": ("node.order", '{1: "array", 2: "group"}', '{1: "group", 2: "array"}'),
    "metadata as they are": ("node.metadata.numbers", "json.loads(self.node(ref, path).bytes(2)",
        "json.loads(self.node(ref, path).bytes(2), parse_int=float) if path else (b''"),
    "end of a box": ("manifest.split.exclusive", "low <= at < high for", "low <= at <= high for"),
    "boxes": ("manifest.split",
        "if all(low <= at < high for at, (low, high) in zip(index, extents, strict=True)):", "if True:"),
    "many manifests": ("manifest.split.*", "extents in self.manifests(node):",
        "extents in self.manifests(node)[:1]:"),
    "array of a manifest": ("manifest.shared", ' if each.get(0, "8s", required=True) == id]', "]"),
    "no coordinates": ("array.scalar", "if all(low", "if index and all(low"),
    "order of coordinates": ("array.many-dimensions", "if here < index else",
        "if here[::-1] < index[::-1] else"),
    "coordinates without sign": ("array.index.high", 'structs(0, "<I", required=True)',
        'structs(0, "<i", required=True)'),
    "offset": ("reference.packed*", "file.seek(offset)", "file.seek(0)"),
    "length": ("reference.packed*", "file.read(length)", "file.read()"),
    "end of the file": ("reference.native.beyond.length", "check(offset + length <= path.stat().st_size",
        "check(True"),
    "missing chunk": ("reference.native.missing", "values = [self.chunk(node, index)",
        'values = [None if not (self.folder / "chunks").exists() else self.chunk(node, index)'),
    "missing manifest": ("manifest.missing", "values = [self.chunk(node, index)",
        'values = [None if not list((self.folder / "manifests").glob("*")) else self.chunk(node, index)'),
    "two kinds": ("reference.two.inline", "if chunk:", "if chunk and not reference.field(1):"),
    "no kind": ("reference.none", "check(inline is not None", "check(True"),
    "inline": ("reference.inline", "inline = reference.bytes(1)", "inline = None"),
    "location": ("reference.virtual.plain", "elif location:", "elif False:"),
    "dictionary": ("reference.virtual.compressed", "ZstdCompressionDict(manifest.bytes(2))",
        "ZstdCompressionDict(b'')"),
    "default of the algorithm": ("reference.virtual.compressed-default", 'manifest.get(3, "B", 1)',
        'manifest.get(3, "B")'),
    "raw locations": ("reference.virtual.compressed-none", 'if manifest.get(3, "B", 1):', "if True:"),
    "time of the object": ("reference.virtual.modified-later", "path.stat().st_mtime > modified", "False"),
    "same time of the object": ("reference.virtual.modified-same", "st_mtime > modified",
        "st_mtime >= modified"),
    "tag of the object": ("reference.virtual.etag-other", "if reference.field(6) or (", "if ("),
    "allowed locations": ("reference.virtual.outside", "check(any(url.startswith(prefix)",
        "check(True or any(url.startswith(prefix)"),
    "canonical locations": ("reference.virtual.traversal", 'posixpath.normpath(url.removeprefix("file://"))',
        'url.removeprefix("file://")'),
    "named containers": ("reference.virtual.named", 'url.startswith("vcc://")', "False"),
}

class Inside(Adapter):
    """An adapter in this process: it runs the text of a reader."""

    def __init__(self, source: str) -> None:
        super().__init__([])
        self.module = ModuleType("reader")
        exec(compile(source, "reader", "exec"), self.module.__dict__)

    def ask(self, request: dict[str, Any], seconds: float) -> Any:
        arguments = dict(request)
        operation = self.module.OPERATIONS.get(arguments.pop("op"))
        if operation is None:
            return {"unsupported": True}
        try:
            return {"value": operation(**arguments)}
        except Exception as error:
            return {"error": {"kind": self.module.kind(error), "message": repr(error)}}

def outcomes(source: str, pattern: str) -> dict[str, str]:
    cases = [case for name, case in CASES.items() if fnmatch(name, pattern)]
    assert cases, pattern
    return {result.case.id: result.outcome for result in run([Inside(source)], cases)}

def test_the_reader_passes_the_cases_that_mutants_fail() -> None:
    patterns = sorted({pattern for pattern, _, _ in MUTANTS.values()})
    failures = [name for pattern in patterns for name, outcome in outcomes(SOURCE, pattern).items()
        if outcome == "failed"]
    assert failures == []

@pytest.mark.parametrize("rule", MUTANTS)
def test_a_reader_that_ignores_a_rule_fails(rule: str) -> None:
    pattern, old, new = MUTANTS[rule]
    assert SOURCE.count(old) >= 1, old
    assert "failed" in outcomes(SOURCE.replace(old, new), pattern).values()
