"""Containers that are given to `ingest` are the user's own."""

from __future__ import annotations

import frazil
from frazil.credentials import Credentials, S3Credentials
from frazil.pipeline.ingest.operation import with_containers

PREFIX = "s3://archive/"


def test_given_containers_are_authorised_and_the_others_stay() -> None:
    own = frazil.VirtualChunkContainer(PREFIX, frazil.s3_store(endpoint_url="https://minio.example"))
    storage = frazil.in_memory_storage()
    config = frazil.RepositoryConfig()
    config.set_virtual_chunk_container(own)
    frazil.Repository.create(storage, config)
    anonymous = Credentials.S3(S3Credentials.Anonymous())
    environment = Credentials.S3(S3Credentials.FromEnv())
    for access, expected in (
        ({}, {PREFIX: environment}),
        ({PREFIX: anonymous}, {PREFIX: anonymous}),
        ({"s3://other/": anonymous}, {PREFIX: environment, "s3://other/": anonymous}),
    ):
        repo = frazil.Repository.open(storage, authorize_virtual_chunk_access=access)
        saved = repo.config.get_virtual_chunk_container(PREFIX)
        assert saved is not None
        assert saved.from_repository
        with_own = with_containers(repo, [own])
        container = with_own.config.get_virtual_chunk_container(PREFIX)
        assert container is not None
        assert not container.from_repository
        assert with_own.virtual_chunk_access == expected
