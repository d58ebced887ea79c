"""Writing the document that is there already."""

from __future__ import annotations

from frazil.changes.change_set import ChangeSet
from frazil.format.nodes import NodeTable

GROUP = b'{"zarr_format":3,"node_type":"group","attributes":{"k":1}}'


def test_it_is_no_change() -> None:
    changes = ChangeSet()
    changes.set_node(NodeTable.from_nodes([]), "/g", GROUP, lambda: b"12345678")
    base = changes.apply(NodeTable.from_nodes([]))
    again = ChangeSet()
    again.set_node(base, "/g", GROUP, lambda: b"abcdefgh")
    assert not again
    again.set_node(base, "/g", GROUP + b" ", lambda: b"abcdefgh")
    assert again.updated == {b"12345678"}
    again.delete_node(base, "/g")
    assert (again.updated, again.deleted) == (set(), {b"12345678": False})
