"""Reading the objects that virtual chunks point to: files that belong to others, in any storage.

A virtual chunk is a range of an object and, often, a condition on the object: its etag, or a time after which
it did not change. Both are compared with what comes in the same answer as the bytes, so nothing can change in
between, and no server has to understand a condition.

URLs are read as the reference reads them. ``file:`` is a URL in full: percent codes are decoded, ``..`` is
resolved, and what follows ``?`` or ``#`` is not part of the path. In ``s3:``, ``gs:`` and ``az:`` all that
follows the bucket is the key, letter by letter. ``http:`` is a URL without a query.
"""

from frazil.storage.foreign.base import ForeignObjects
from frazil.storage.foreign.factory import open_foreign
from frazil.storage.foreign.files import ForeignFiles, file_etag
from frazil.storage.foreign.object_store import ForeignStore
from frazil.storage.foreign.web import ForeignWeb

__all__ = ["ForeignFiles", "ForeignObjects", "ForeignStore", "ForeignWeb", "file_etag", "open_foreign"]
