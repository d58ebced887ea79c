"""The bytes of the field ``config`` of the repository file."""

from __future__ import annotations

from frazil.format.flexbuffer import dumps, loads
from frazil.repository.settings.config import RepositoryConfig
from frazil.repository.settings.config_document import from_document, to_document


def encode_config(config: RepositoryConfig) -> bytes:
    return dumps(to_document(config))


def decode_config(data: bytes) -> RepositoryConfig:
    return from_document(loads(data, "configuration of the repository"))
