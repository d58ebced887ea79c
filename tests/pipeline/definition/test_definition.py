"""Definitions in TOML: what is accepted, and errors that name the file, the table and the key."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.pipeline.definition.feed import DEFINITION, feed

import frazil
from frazil.errors import ErrorKind, InvalidInputError
from frazil.pipeline import Pipeline, PipelineDerived, PipelineIngest
from frazil.pipeline.definition.tables import declaration_of, request_of
from frazil.pipeline.derivation.declaration import functions

INGEST = '[[ingest]]\nfiles = "x.nc"\ngroup = "/weather"\n'
#: A text of the definition, what replaces it, the beginning of the error, and a part of the rest.
WRONG = {
    "no table": ('name = "feed"', "name =", "", "must be TOML"),
    "missing name": ('name = "feed"', "", "", "the key `name` must be set"),
    "unknown key": ("owners", "owner", "", "`owner` must be one of the keys.*`owners`"),
    "folder": ("owners", "folder", "", "`folder` must be one of the keys"),
    "key of a table": ("owners", "branch", "", "`branch` must be one of the keys"),
    "name": ('name = "feed"', 'name = "a b"', "", "`name` must be letters"),
    "type": ('repository = "ice"', "repository = 3", "", "repository must be str, got int"),
    "secret": ('"ice"', '"s3://user:secret@bucket/x"', "", "Credentials come from"),
    "owners": ('owners = ["Ada"]', "owners = 3", "", "owners must be Sequence"),
    "ingest option": ("concat_dim", "concat_dm", "[[ingest]] 1: ", "`concat_dm` must.*`concat_dim`"),
    "ingest type": ("{time = 4}\non", "4\non", "[[ingest]] 1: ", "`chunks` must be Mapping or None"),
    "ingest choice": ('"quarantine"', '"quarantene"', "[[ingest]] 1: ", "on_problem must be one of"),
    "ingest size": ("{time = 4}\non", "{time = 0}\non", "[[ingest]] 1: ", "chunks of time must be"),
    "managed option": ("concat_dim", "job_id", "[[ingest]] 1: ", "`job_id` must be"),
    "no files": ('files = "t2m_*.nc"', "", "[[ingest]] 1: ", "the key `files` must be set"),
    "not a list": ("[[ingest]]", "[ingest]", "", r"`ingest` must be tables \[\[ingest\]\]"),
    "rule": ('"Range"', '"Rang"', "[[rules]] 1: ", "`rule` must be one of.*Did you mean `Range`"),
    "rule without kind": ('rule = "Range"', "", "[[rules]] 1: ", "the key `rule` must be set"),
    "rule field": ("min = 180", "minimum = 180", "[[rules]] 1: ", "`minimum` must be one of the keys"),
    "rule value": ("min = 180", "min = 400", "[[rules]] 1: ", "min must be at most max"),
    "operation": ('"climatology"\ns', '"climatolgy"\ns', "[[derived]] 2: ", "`operation` must"),
    "parameter": ("factors", "factor", "[[derived]] 1: ", "`factor` must be an argument.*`factors`"),
    "parameter type": ("{time = 4}\nto", "4\nto", "[[derived]] 1: ", "factors must be Mapping, got int"),
    "parameter missing": ("factors = {time = 4}\n", "", "[[derived]] 1: ", "'factors'"),
    "parameter value": ('to = "/cl', 'period = "day"\nto = "/cl', "[[derived]] 2: ", "period must be"),
    "groups": ('to = "/climatology"', 'to = "/daily/x"', "", "a group `to` of its own"),
    "equal groups": ("[[rules]]", f"{INGEST}[[rules]]", "", "`group` of its own"),
    "engine": ('"inline"', '"inside"', "", "`engine` must be one of"),
    "publish": ("[[rules]]", '[publish]\ntags = "x"\n[[rules]]', "[publish]: ", "`tags` must be.*`tag`"),
    "retention": ("[[rules]]", "[retention]\nversions = 0\n[[rules]]", "", "`versions` must be at least 1"),
    "retention type": ("[[rules]]", '[retention]\ndays = "7"\n[[rules]]', "", "days must be float"),
}


@pytest.mark.parametrize(("text", "other", "place", "message"), WRONG.values(), ids=WRONG)
def test_wrong_definitions(tmp_path: Path, text: str, other: str, place: str, message: str) -> None:
    assert text in DEFINITION
    file = tmp_path / "feed.toml"
    with pytest.raises(InvalidInputError) as caught:
        feed(tmp_path, DEFINITION.replace(text, other, 1))
    begin = f"{file}: {place}" if message != "must be TOML" else str(file)
    assert str(caught.value).startswith(begin)
    assert re.search(message, str(caught.value))
    assert caught.value.kind in (ErrorKind.INVALID_ARGUMENT, ErrorKind.UNKNOWN_CHOICE)
    assert list(tmp_path.iterdir()) == [file]


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"none\.toml must be a definition"):
        Pipeline.load(tmp_path / "none.toml")


def test_every_operation_can_be_declared() -> None:
    public = {*functions()}
    assert public == {name for name in public if callable(getattr(frazil.pipeline, name))}
    assert {"coarsen", "map_blocks", "mean", "regrid", "resample", "select", "anomaly"} <= public


@pytest.mark.parametrize(
    ("operation", "parameters"),
    [
        ("anomaly", {"group": "/climatology", "spread": "/deviation"}),
        ("groupby", {"by": "time.month", "how": ["min", "max"]}),
        ("map_blocks", {"function": "numpy:negative"}),
        ("mean", {"dims": "time", "skipna": False}),
        ("quantile", {"q": [0.1, 0.9], "dims": "time"}),
        ("rechunk", {"chunks": {"time": -1, "lat": 1}, "max_mem": "1GB"}),
        ("regrid", {"target_grid": {"lat": [0, 5], "lon": [0, 5]}}),
        ("select", {"isel": {"time": {"$": "slice", "parts": [0, 4, None]}}}),
    ],
)
def test_declarations_are_the_operations_of_their_functions(
    operation: str, parameters: dict[str, object]
) -> None:
    table = PipelineDerived(operation, "/a/t", "/b", parameters)
    declared = declaration_of(table)
    assert declared.operation.job_name == operation
    assert declared.operation.paths == ("/a/t",)
    assert declared.group == "/b"


def test_options_of_an_ingest(tmp_path: Path) -> None:
    table = PipelineIngest(
        ["a.nc", "s3://bucket/b.nc"], "x", {"containers": ["s3://bucket/"], "virtual": True}
    )
    assert table.options["containers"][0].url_prefix == "s3://bucket/"
    request = request_of(table, tmp_path, on_change="rewrite")
    assert request.files.urls == (str(tmp_path / "a.nc"), "s3://bucket/b.nc")
    assert (request.mode, request.on_change, request.virtual) == ("backfill", "rewrite", True)
