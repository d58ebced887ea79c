"""The decoders of arrays, for the level `decode`. Only zarr decodes chunks: the store of a session has it."""

from __future__ import annotations

from collections.abc import Buffer
from functools import lru_cache

from frazil.errors import FormatError
from frazil.format.ids import id_list, id_to_text
from frazil.maintenance.verification.chunks import Decode, DecoderOf
from frazil.repository.catalog.context import Context
from frazil.repository.session.frames import claimed_bytes, require_plausible
from frazil.repository.session.session import reading
from frazil.repository.session.workspace import Workspace


def decoders(context: Context) -> DecoderOf:
    """Return a function that returns the decoder of an array, by its node id and a snapshot that has it."""

    @lru_cache(maxsize=64)
    def decoder(node: bytes, snapshot: bytes) -> Decode:
        workspace = Workspace(context, snapshot)
        nodes = context.assets.snapshot(snapshot).nodes
        row = id_list(nodes.ids).index(node)
        path, document = nodes.paths.text(row), nodes.user_data.bytes(row)
        decode = reading(workspace).store.chunk_decoder(path).error

        def error(coords: tuple[int, ...], data: Buffer) -> str:
            claimed = claimed_bytes(data)
            try:
                if claimed is not None:
                    require_plausible(f"{path} of {id_to_text(snapshot)}", document, data, claimed)
            except FormatError as refusal:
                return refusal.message
            return decode(coords, data)

        return error

    return decoder
