"""The state of the target of a copy."""

from __future__ import annotations

import pytest
from tests.support.object_server import Conditions, ObjectServer
from tests.support.servers import s3_bucket

import frazil
from frazil.errors import ErrorKind, InvalidInputError
from frazil.pipeline import clone_repository, copy_repository
from frazil.storage.object_store import ObjectStorage


@pytest.mark.parametrize("operation", [clone_repository, copy_repository])
def test_a_copy_needs_a_prefix_in_a_bucket(operation) -> None:
    repo = frazil.Repository.create(frazil.in_memory_storage())
    with ObjectServer(Conditions.QUOTED_ETAG) as server:
        server.make_bucket("bucket")
        target = ObjectStorage(s3_bucket("bucket", server.port))
        with pytest.raises(InvalidInputError, match="must have a prefix in the bucket") as caught:
            operation(repo, target, engine="inline")
        assert caught.value.kind == ErrorKind.EMPTY_PREFIX_CREATION
        assert [*server.objects("bucket")] == []
