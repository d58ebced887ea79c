"""What a reader must find in right files."""

from __future__ import annotations

from pathlib import Path

from icechunk_kit.case import Step, case
from icechunk_kit.files import Node, Repository, encode_id, inline, native

KINDS = (
    (
        "read.reference.inline",
        inline(b"\1\2\3"),
        "Inline refs: the encoded chunk bytes, stored directly in the manifest.",
    ),
    (
        "read.reference.native",
        native(b"\1\2\3"),
        "Native refs: the id of the chunk file in the repository's storage.",
    ),
    (
        "read.reference.packed",
        native(b"\1\2\3", before=b"other", after=b"bytes"),
        "Multiple contiguous chunks from the same array in a single chunk file.",
    ),
)
for _id, _reference, _rule in KINDS:

    @case(_id, "reader", "2.0", _rule, "Each array is empty or wrong when a kind of reference is not read.")
    def _(folder: Path, reference: dict[str, object] = _reference) -> list[Step]:
        repository = Repository(folder)
        repository.commit([Node("/a", shape=[6], chunks=[3], refs={(1,): reference})])
        repository.write()
        return [
            {
                "op": "read",
                "ref": {"branch": "main"},
                "path": "/a",
                "chunks": [[0], [1]],
                "expect": [None, "010203"],
            }
        ]


@case(
    "read.history",
    "reader",
    "2.0",
    "The parent_offset field encodes the parent relationship as an offset within the snapshots list.",
    "Users see versions in a wrong order, or versions of another branch.",
)
def _history(folder: Path) -> list[Step]:
    repository = Repository(folder)
    first = repository.commit([], message="first")
    repository.commit([], message="second")
    repository.branches["dev"] = first
    third = repository.commit([], message="third", branch="dev")
    repository.tags["v1"] = first
    repository.write()
    names = ["third", "first", "Repository initialized"]
    return [
        {
            "op": "refs",
            "expect": {"branches": {"dev": encode_id(third), "main": "*"}, "tags": {"v1": encode_id(first)}},
        },
        {
            "op": "log",
            "ref": {"branch": "dev"},
            "expect": [{"id": "*", "message": name, "time": "*"} for name in names],
        },
    ]
