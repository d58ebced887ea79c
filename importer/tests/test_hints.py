"""What an old repository says about its containers is a hint, too."""

from __future__ import annotations

from typing import Any

import pytest
from tests.repository.hostile import DATA, listening

import frazil
from frazil.credentials import Credentials, s3_credentials
from frazil_import.conversion import sizes_of

KEY = Credentials.S3(s3_credentials(access_key_id="a", secret_access_key="b", session_token="secret"))


def test_sizes_are_not_asked_for_where_the_repository_says() -> None:
    with listening() as server:
        store: dict[str, Any] = {
            "S3Compatible": {"endpoint_url": server.url, "allow_http": True, "region": "us-east-1"}
        }
        settings = {"virtual_chunk_containers": {"s3": {"name": "s3", "url_prefix": "s3", "store": store}}}
        with pytest.raises(frazil.InvalidInputError) as error:
            sizes_of(settings, None, {"s3://box/": KEY})
        assert error.value.kind == "untrusted-virtual-chunk-container"
        assert server.visits == []
        config = frazil.RepositoryConfig()
        own = frazil.s3_store(
            region="us-east-1", endpoint_url=server.url, allow_http=True, force_path_style=True
        )
        config.set_virtual_chunk_container(frazil.VirtualChunkContainer("s3://box/", own))
        look_up = sizes_of(settings, config, {"s3://box/": KEY})
        assert look_up is not None
        assert look_up(["s3://box/x"]).tolist() == [len(DATA)]
