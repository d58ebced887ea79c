"""A reader that ignores one rule fails a case of this rule."""

from __future__ import annotations

import unicodedata
from fnmatch import fnmatch
from functools import partial
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
    "signed vtable": ("header.vtable.*", 'number(data, "<i", self.place)', 'number(data, "<I", self.place)'),
    "required fields": ("required.repo.*", "check(all(map(self.field, slots))", "check(True"),
    "bounds of vectors": ("damage.manifest.vector.beyond", "check(place + 4 + count * size <=", "check(0 <="),
    "text": ("damage.snapshot.path.utf-8", "self.bytes(slot).decode()",
        "self.bytes(slot).decode(errors='replace')"),
    "padding of ids": ("reference.native", "<< digits * 5 - len(id) * 8", ""),
    "digits of ids": ("reference.native", "GHJKMNPQRSTVWXYZ", "GHIJKLMNOPQRSTUV"),
    "index of the parent": ("history.log", "ids[number] if", "ids[ids.index(id) - number] if"),
    "sign of the parent": ("history.log", 'number = info.get(1, "<i")', 'number = info.get(1, "<I")'),
    "first parent": ("history.*", "if number >= 0 else", "if number > 0 else"),
    "a cycle of parents": ("repo.parent.cycle", 'raise ValueError("the ancestry has no end")', "return"),
    "a parent that is none": ("repo.parent.beyond", "if number >= 0 else", "if 0 <= number < len(ids) else"),
    "a reference to none": ("repo.index.beyond", '[ref.get(1, "<I")]', '[min(ref.get(1, "<I"), 1)]'),
    "branches and tags": ("refs.same-name", '(("tag", 1), ("branch", 2))', '(("branch", 1), ("branch", 2))'),
    "unknown names": ("refs.absent", "{name: name})[name]",
        '{name: name}).get(name, "1CECHNKREP0F1RSTCMT0")'),
    "snapshots that were expired": ("history.expired", "id not in self.infos", "False"),
    "microseconds": ("history.times", 'info.get(2, "<Q")', 'info.get(2, "<Q") // 1000 * 1000'),
    "order of the log": ("history.clock", "*_ in ancestry]", "*_ in sorted(ancestry, key=lambda e: -e[2])]"),
    "older updates": ("updates.chain", "table.text(8)", '""'),
    "kinds of updates": ("updates.kinds", '[e.get(0, "B") - 1]', '[e.get(0, "B") % 16]'),
    "FlexBuffers": ("properties.2.0.text", "flexbuffers.Loads if version == 2 else", ""),
    "MessagePack": ("properties.1.text", " if version == 2 else msgpack.unpackb", ""),
    "id of the snapshot": ("damage.snapshot.other-file", "check(kind == 6 or", "check(True or"),
    "the newer version": ("version1.beside", 'if (self.folder / "repo")', 'if not (self.folder / "refs")'),
    "deleted tags": ("version1.deleted-tag", 'if not path.with_name("ref.json.deleted").exists()', "if True"),
    "parents of version 1": ("version1.history", 'encode(table.get(1, "12s")) if table.field(1) else', ""),
    "parent of itself": ("version1.parent.itself", "check(parent != id",
        "if parent == id: return\n            check(True"),
    "order of paths": ("node.order", "item[0].encode()", 'item[0].split("/")'),
    "paths are bytes": ("node.path.decomposed", "return {node.text(1)", "return {normalize(node.text(1))"),
    "union": ("node.order", '{1: "array", 2: "group"}', '{1: "group", 2: "array"}'),
    "numbers of metadata": ("node.metadata.numbers", "[path].bytes(2))", "[path].bytes(2), parse_int=float)"),
    "end of a box": ("manifest.split.exclusive", "low <= at < high for", "low <= at <= high for"),
    "boxes": ("manifest.split", "if all(low <= at < high", "if any(True or low <= at < high"),
    "many manifests": ("manifest.split.*", "in self.manifests(node):", "in self.manifests(node)[:1]:"),
    "array of a manifest": ("manifest.shared", ' if each.get(0, "8s") == node.get(0, "8s")]', "]"),
    "no coordinates": ("array.scalar", "if all(low", "if index and all(low"),
    "order of coordinates": ("array.many-dimensions", "return [at for (at,) in", "return [-at for (at,) in"),
    "coordinates without sign": ("array.index.high", 'structs(0, "<I")', 'structs(0, "<i")'),
    "offset": ("reference.packed*", "file.seek(offset)", "file.seek(0)"),
    "length": ("reference.packed*", "file.read(length)", "file.read()"),
    "end of the file": ("reference.native.beyond.length", "check(offset + length <=", "check(0 <="),
    "missing chunk": ("reference.native.missing", "offset, length = ref",
        "if not path.exists(): return None\n        offset, length = ref"),
    "missing manifest": ("manifest.missing", "manifest, place, count =",
        'if not any(self.folder.glob("manifests/*")): return\n                manifest, place, count ='),
    "two kinds": ("reference.two.inline", 'if chunk := reference.get(4, "12s")',
        'if chunk := not reference.field(1) and reference.get(4, "12s")'),
    "no kind": ("reference.none", "reference.require(1).bytes(1)", "reference.bytes(1)"),
    "inline": ("reference.inline", "reference.require(1).bytes(1)", "None"),
    "location": ("reference.virtual.plain", "elif packed or url:", "elif packed:"),
    "dictionary": ("reference.virtual.compressed", "manifest.require(2).bytes(2)", "b''"),
    "default of the algorithm": ("reference.virtual.compressed-default", 'get(3, "B", 1)', 'get(3, "B")'),
    "raw locations": ("reference.virtual.compressed-none", 'if packed and manifest.get(3, "B", 1):',
        "if packed:"),
    "long locations": ("reference.virtual.compressed-bomb", "check(len(packed) <= 1024", "check(True"),
    "time of the object": ("reference.virtual.modified-later", "path.stat().st_mtime > modified", "False"),
    "same time of the object": ("reference.virtual.modified-same", "st_mtime > modified",
        "st_mtime >= modified"),
    "tag of the object": ("reference.virtual.etag-other", "if reference.field(6) or (", "if ("),
    "allowed locations": ("reference.virtual.outside", "check(any(path.as_uri()",
        "check(True or any(path.as_uri()"),
    "canonical locations": ("reference.virtual.traversal", 'posixpath.normpath(url.removeprefix("file://"))',
        'url.removeprefix("file://")'),
    "named containers": ("reference.virtual.named", 'url.startswith("vcc://")', "False"),
}

class Inside(Adapter):
    """An adapter in this process: it runs the text of a reader."""

    def __init__(self, source: str) -> None:
        super().__init__([])
        self.module = ModuleType("reader")
        self.module.__dict__["normalize"] = partial(unicodedata.normalize, "NFC")
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
