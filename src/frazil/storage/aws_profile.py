"""Keys and region of the user's AWS profile. The object store client does not read these files itself.

AWS's own tools search several places. The client reads environment variables, web identity tokens, container
credentials and the metadata of the instance. Two files come after the environment variables and before the
other places::

    ~/.aws/credentials    [name]           aws_access_key_id, aws_secret_access_key, aws_session_token
    ~/.aws/config         [profile name]   the same, and region

``AWS_PROFILE`` is the name of the profile (default: ``default``). ``AWS_SHARED_CREDENTIALS_FILE`` and
``AWS_CONFIG_FILE`` are paths of other files. Single sign-on, assumed roles and credential processes are not
supported: the user passes their result through ``get_credentials`` or the environment.
"""

from __future__ import annotations

import os
from configparser import Error, RawConfigParser
from pathlib import Path

from frazil.errors import ErrorKind, StorageError
from frazil.storage.credential_families import S3StaticCredentials


def profile_keys() -> S3StaticCredentials | None:
    """Return the keys of the profile, or None if it has no keys.

    The result is also None if the environment has keys, which take precedence.
    """
    if "AWS_ACCESS_KEY_ID" in os.environ:
        return None
    profile = _profile()
    key, secret = profile.get("aws_access_key_id"), profile.get("aws_secret_access_key")
    if not key or not secret:
        return None
    return S3StaticCredentials(key, secret, profile.get("aws_session_token"))


def profile_region() -> str | None:
    """Return the region of the profile, or None if it has no region.

    The result is also None if the environment has a region, which takes precedence.
    """
    if "AWS_REGION" in os.environ or "AWS_DEFAULT_REGION" in os.environ:
        return None
    return _profile().get("region")


def _profile() -> dict[str, str]:
    name = os.environ.get("AWS_PROFILE") or "default"
    section = name if name == "default" else f"profile {name}"
    config = _section("AWS_CONFIG_FILE", "config", section)
    return config | _section("AWS_SHARED_CREDENTIALS_FILE", "credentials", name)


def _section(variable: str, file: str, section: str) -> dict[str, str]:
    path = Path(os.environ.get(variable) or Path.home() / ".aws" / file)
    parser = RawConfigParser(strict=False)
    try:
        parser.read(path, encoding="utf-8")
    except (Error, UnicodeDecodeError) as error:
        raise StorageError(
            f"cannot read the AWS profile in {path}: {' '.join(str(error).split())}", ErrorKind.STORAGE_CONFIG
        ).with_remedy(
            "Correct the file, or pass access_key_id and secret_access_key",
            shell="Correct the file, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        ) from error
    return dict(parser[section]) if parser.has_section(section) else {}
