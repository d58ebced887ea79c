"""The explorer as a widget of notebooks, which needs no port and no network.

The page runs in a frame in the output of a cell, and gets its bytes by messages to the kernel. An answer has
the id of its message, and one buffer with the bytes. It has no buffer if there is no such file, and an
``error`` with a kind and a message if the read fails.

========================================  ==================================================================
message                                   answer
========================================  ==================================================================
``id``, ``file``                          a file of the repository
``id``, ``file``, ``start``, ``end``      its bytes from ``start`` up to ``end``
``id``, ``virtual``, ``start``, ``end``   bytes of an object in an authorised container
``id``, ``asset``                         a file of the page
========================================  ==================================================================

Reads run on threads, so that those of a remote storage overlap. The answers go out from the thread that
receives the messages, because some kernels send from no other thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Buffer, Mapping
from typing import Any, Final

from frazil.arguments import wrong_type
from frazil.errors import ErrorKind, IcechunkError, InvalidInputError
from frazil.extras import needs
from frazil.format.chunk_table import VirtualRef
from frazil.handle.repository import Repository, context_of
from frazil.repository.asynchronous import on_thread
from frazil.repository.session.session import Session
from frazil.storage.local import LocalStorage
from frazil.ui.files import LONGEST, RepositoryFiles, assets, range_of

with needs("frazil.ui.Explorer", extra="widget"):
    from anywidget import AnyWidget
    from traitlets import Dict, Int

__all__ = ["Explorer"]

_log: Final = logging.getLogger(__name__)
_ASSETS: Final = assets()


class Explorer(AnyWidget):
    """The explorer in the output of a notebook cell: versions, arrays, chunks, values and differences.

    The page is that of ``frazil ui``. It reads through the handle, with its credentials, which stay in the
    kernel. It cannot change the repository. It waits while a cell runs.

    Attributes:
        height: The height of the page in pixels.

    Examples:
        >>> import frazil, zarr
        >>> from frazil.ui import Explorer
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> with repo.transaction("main", message="first") as store:
        ...     array = zarr.create_array(store, name="t", shape=(4,), chunks=(2,), dtype="i4")
        >>> explorer = Explorer(repo)  # the last expression of a cell shows it
        >>> explorer = Explorer(repo.readonly_session(branch="main"), "/t", height=800)
        >>> explorer.height
        800
    """

    _esm = _ASSETS["widget.js"].read_text(encoding="utf-8")
    #: The label of the repository, and the version and the path that the page shows first.
    settings = Dict().tag(sync=True)
    height = Int(min=1).tag(sync=True)

    def __init__(self, source: Repository | Session, path: str | None = None, *, height: int = 600) -> None:
        """Prepare the widget.

        Args:
            source: A repository, of which the page shows the history first, or a session, of which it shows
                the snapshot. The uncommitted changes of a session are not shown.
            path: The path of the group or array that the page shows first. Default: the history or the root.
            height: The height of the page in pixels.

        Raises:
            MissingExtraError: ``missing-extra`` if anywidget is not installed.
            TypeError: If ``source`` is neither a repository nor a session.
        """
        version = None
        if isinstance(source, Repository):
            context = context_of(source)
        elif isinstance(source, Session):
            context, version = source.workspace.context, source.snapshot_id
        else:
            raise wrong_type("source", source, "Repository", "Session")
        self._files = RepositoryFiles(context.storage, context.spec_version)
        self._virtual = context.virtual
        self._tasks: set[asyncio.Task[None]] = set()
        root = str(context.storage.root) if isinstance(context.storage, LocalStorage) else None
        first = {"version": version, "path": path, "location": root}
        settings = {"label": context.storage.label(), **{k: v for k, v in first.items() if v is not None}}
        super().__init__(settings=settings, height=height)
        self.on_msg(self._receive)

    def _receive(self, _widget: object, message: Mapping[str, Any], _buffers: object) -> None:
        """Answer a message, later if the kernel has an event loop."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self.send(*self._answer(message))
            return
        task = loop.create_task(self._reply(message))
        self._tasks.add(task)  # the loop itself has only weak references
        task.add_done_callback(self._tasks.discard)

    async def _reply(self, message: Mapping[str, Any]) -> None:
        self.send(*await on_thread(self._answer, message))

    def _answer(self, message: Mapping[str, Any]) -> tuple[dict[str, Any], list[bytes]]:
        """Return the content of an answer and its buffers."""
        answer = {"id": message.get("id")}
        try:
            data = self._read(message)
        except IcechunkError as error:
            if error.kind is not ErrorKind.OBJECT_NOT_FOUND:
                answer["error"] = {"kind": str(error.kind), "message": str(error)}
            return answer, []
        except Exception:  # else the page would wait forever
            _log.exception("an answer failed")
            answer["error"] = {"kind": "other", "message": "the kernel could not answer: see its log"}
            return answer, []
        return answer, [] if data is None else [bytes(data)]

    def _read(self, message: Mapping[str, Any]) -> Buffer | None:
        match message:
            case {"asset": str(name)}:
                return _ASSETS[name].read_bytes() if name in _ASSETS else None
            case {"virtual": str(url), "start": int(start), "end": int(end)} if _is_range(start, end):
                return self._virtual.locate(VirtualRef(url, start, end - start)).get(start, end)
            case {"file": str(key), "start": int(start), "end": int(end)} if _is_range(start, end):
                content = self._files.content(key)
                return None if content is None else range_of(content, start, end)
            case {"file": str(key), **rest} if rest.keys() <= {"id"}:
                content = self._files.content(key)
                if content is None or _is_range(0, max(1, content.size)):
                    return None if content is None else range_of(content, 0, content.size)
        raise InvalidInputError(
            "a message must name an `asset`, or a `file` or a `virtual` object with `start` before `end`, "
            f"and at most {LONGEST >> 20} MiB. `frazil ui` also sends larger files"
        )


def _is_range(start: int, end: int) -> bool:
    return 0 <= start < end <= start + LONGEST
