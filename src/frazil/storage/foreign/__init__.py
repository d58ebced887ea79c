"""Reads of the objects that virtual chunks refer to: objects of other owners, in any storage.

A virtual chunk is a range of an object. Often it has a condition: the etag of the object, or a time after
which the object did not change. The reader compares both with the answer that contains the bytes. So no
change can happen in between, and no server needs to support conditions.

URLs are read in the same way as the reference reads them. A ``file:`` URL is a complete URL: percent
codes are decoded, ``..`` is resolved, and the text after ``?`` or ``#`` does not belong to the path. In
``s3:``, ``gs:`` and ``az:`` all characters after the bucket are the key, without decoding. An ``http:``
URL has no query.
"""

from typing import TYPE_CHECKING

from frazil.lazy_names import import_on_demand

if TYPE_CHECKING:
    from frazil.storage.foreign.base import ForeignObjects
    from frazil.storage.foreign.factory import open_foreign
    from frazil.storage.foreign.files import ForeignFiles, file_etag
    from frazil.storage.foreign.object_store import ForeignStore
    from frazil.storage.foreign.web import ForeignWeb

import_on_demand(
    __name__,
    {
        "ForeignObjects": "frazil.storage.foreign.base",
        "open_foreign": "frazil.storage.foreign.factory",
        "ForeignFiles": "frazil.storage.foreign.files",
        "file_etag": "frazil.storage.foreign.files",
        "ForeignStore": "frazil.storage.foreign.object_store",
        "ForeignWeb": "frazil.storage.foreign.web",
    },
)

__all__ = ["ForeignFiles", "ForeignObjects", "ForeignStore", "ForeignWeb", "file_etag", "open_foreign"]
