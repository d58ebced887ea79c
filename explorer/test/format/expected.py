"""Write what the explorer's reader is compared with: repositories, and what Frazil and xarray read in them.

``python expected.py FOLDER`` writes golden repositories, repositories with random arrays, frames of zstd,
times of all calendars, and a large repository, each with a JSON file.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import random
import shutil
import sys
import zipfile
from pathlib import Path
from typing import Any

import cftime  # type: ignore[import-untyped]
import numpy as np
import xarray as xr
import zarr
import zstandard
from zarr.codecs.numcodecs import Delta, FixedScaleOffset, Shuffle, Zlib

import frazil
from frazil.cli.main import main as run_command
from frazil.error_kinds import ErrorKind
from frazil.format.envelope import HEADER_BYTES, MAGIC, FileType
from frazil.format.ids import id_texts
from frazil.format.repo_info import FIELDS_OF
from frazil.repository.target import Target
from frazil.ui.commands import COMMANDS, Change, CommandResult, planned

GOLDEN = Path(__file__).resolve().parents[3] / "tests" / "golden"
SEED = 20261127
ARRAYS = 150
INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
TYPES = ["bool", *INTEGERS, "float16", "float32", "float64", "complex64", "complex128"]
CALENDARS = ["standard", "proleptic_gregorian", "julian", "noleap", "all_leap", "360_day"]


def digest(values: Any) -> dict[str, str]:
    """The digest of elements, as in the golden repositories."""
    values = np.asarray(values)
    if values.dtype.kind in "OTU":
        text = json.dumps(values.ravel().tolist(), ensure_ascii=False)
        return {"sha256_json": hashlib.sha256(text.encode()).hexdigest()}
    little = values.astype(values.dtype.newbyteorder("<"))
    return {"sha256": hashlib.sha256(np.ascontiguousarray(little).tobytes()).hexdigest()}


def serializer(rng: random.Random, rank: int, size: int) -> tuple[list[Any], Any, list[Any]]:
    """Random codecs: filters, serializer, compressors."""
    filters: list[Any] = []
    if rng.random() < 0.3:
        filters.append(zarr.codecs.TransposeCodec(order=tuple(rng.sample(range(rank), rank))))
    endian: Any = rng.choice(["little", "little", "big"])
    names: list[Any] = ["lz4", "lz4hc", "blosclz", "zlib", "zstd"]
    blosc = zarr.codecs.BloscCodec(
        cname=rng.choice(names),
        clevel=rng.randrange(1, 10),
        shuffle=rng.choice(["shuffle", "noshuffle", "bitshuffle"]),
        blocksize=rng.choice([0, 0, 512, 4096]),
    )
    compressors: list[Any] = rng.choice(
        [
            [],
            [zarr.codecs.ZstdCodec(level=rng.randrange(-3, 20), checksum=rng.random() < 0.5)],
            [zarr.codecs.GzipCodec(level=rng.randrange(10))],
            [blosc],
            [blosc],
            [blosc, zarr.codecs.Crc32cCodec()],
            [Shuffle(elementsize=size), Zlib(level=3)],
        ]
    )
    return filters, zarr.codecs.BytesCodec(endian=endian), compressors


def random_values(rng: random.Random, kind: str, shape: tuple[int, ...]) -> Any:
    """Values that compress: steps of a walk."""
    np_rng = np.random.default_rng(rng.randrange(1 << 30))
    if kind == "string":
        words = ["", "a", "größe", "ice 🧊", "x" * 40]
        return np.array([rng.choice(words) for _ in range(int(np.prod(shape)))], dtype=object).reshape(shape)
    walk = np.cumsum(np_rng.integers(-2, 3, int(np.prod(shape)))).reshape(shape)
    with np.errstate(all="ignore"):  # large steps of a walk do not fit small integers
        values = walk.astype(kind) if kind != "bool" else walk % 2 == 0
        return values * np.asarray(1 + 2j, dtype=kind) if kind.startswith("c") else values


def write_random(folder: Path, spec_version: int, seed: int) -> None:
    """A repository with random arrays, and the digests of them and of regions of them."""
    rng = random.Random(seed)
    # small inline chunks, so that all kinds occur
    config = frazil.RepositoryConfig(inline_chunk_threshold_bytes=64)
    storage = frazil.local_filesystem_storage(str(folder / "repo"))
    repo = frazil.Repository.create(storage, config, spec_version=spec_version)
    session = repo.writable_session("main")
    expected: dict[str, Any] = {}
    for number in range(ARRAYS):
        kind = rng.choice([*TYPES, "string"])
        rank = rng.choice([1, 1, 2, 2, 3, 4])
        lengths = [0, 1, 3, 7, 12, 33, *range(1, 26), *range(1, 26)]
        shape = tuple(rng.choice(lengths) for _ in range(rank))
        chunks = tuple(rng.randrange(1, max(2, length + 2)) for length in shape)
        size = 1 if kind == "string" else np.dtype(kind).itemsize
        filters, bytes_codec, compressors = serializer(rng, rank, size)
        options: dict[str, Any] = {"chunks": chunks}
        if rng.random() < 0.3 and kind != "string":
            options["shards"] = tuple(length * rng.randrange(1, 4) for length in chunks)
        if kind == "string":
            filters, compressors = [], compressors if rng.random() < 0.5 else []
            compressors = [zarr.codecs.ZstdCodec(level=1)] if compressors else []
        else:
            options["serializer"] = bytes_codec
        if kind in ("float32", "float64") and rng.random() < 0.2:
            options["fill_value"] = rng.choice([float("nan"), float("inf"), -1.5])
        if kind in ("int64", "uint64"):
            info = np.iinfo(kind)
            options["fill_value"] = rng.choice([int(info.max), int(info.min), 7])
        if kind == "int32" and rng.random() < 0.5:
            filters = [Delta(dtype="<i4")]
        if kind == "float64" and rng.random() < 0.3:
            filters, compressors = [FixedScaleOffset(offset=3, scale=2, dtype="<f8", astype="<i2")], []
            options["fill_value"] = 0.0
        path = f"a{number:03}"
        array = zarr.create_array(
            session.store,
            name=path,
            shape=shape,
            dtype=str if kind == "string" else kind,
            filters=filters or None,
            compressors=compressors or None,
            **options,
        )
        values = random_values(rng, kind, shape)
        if 0 in shape:
            pass
        elif rng.random() < 0.7:
            array[...] = values
        else:
            part = tuple(slice(rng.randrange(length), length) for length in shape)
            array[part] = values[part]
        stored = np.asarray(array[...])
        entry: dict[str, Any] = {"dtype": kind, **digest(stored), "regions": []}
        for _ in range(4):
            cuts = [sorted((rng.randrange(length + 1), rng.randrange(length + 1))) for length in shape]
            step = [rng.choice([1, 1, 2, 3, 7]) for _ in shape]
            region = tuple(slice(a, b, s) for (a, b), s in zip(cuts, step, strict=True))
            starts, stops = [a for a, _ in cuts], [b for _, b in cuts]
            entry["regions"].append({"start": starts, "stop": stops, "step": step, **digest(stored[region])})
        expected[f"/{path}"] = entry
    codecs: list[Any] = [zarr.codecs.BytesCodec(), zarr.codecs.ZstdCodec()]
    nested = zarr.codecs.ShardingCodec(chunk_shape=(4, 4), codecs=codecs)
    outer = zarr.codecs.ShardingCodec(chunk_shape=(8, 8), codecs=[nested], index_location="start")
    options = {
        "shape": (200, 200),
        "chunks": (200, 200),
        "dtype": "f8",
        "serializer": outer,
        "compressors": None,
    }
    shards = zarr.create_array(session.store, name="nested", **options)
    shards[:150] = np.random.default_rng(1).normal(size=(150, 200))
    corner = np.asarray(shards[10:20, 30:190:5])
    place = {"start": [10, 30], "stop": [20, 190], "step": [1, 5], **digest(corner)}
    expected["/nested"] = {"dtype": "float64", **digest(shards[...]), "regions": [place]}
    metadata = {"n": [1, 2.5, None, {"deep": True}], "text": "ü", "big": 1 << 40}
    session.commit("random arrays", metadata=metadata)
    refs = {"branches": {"main": repo.lookup_branch("main")}, "tags": {}}
    if spec_version == 1:
        (folder / "repo" / "index.json").write_text(json.dumps(refs))
    (folder / "expected.json").write_text(json.dumps({"refs": refs, "arrays": expected}))


def write_cf(folder: Path) -> None:
    """Packed values and times, with what xarray makes of them."""
    dates = ["1850-01-01 06:00", "1999-12-30", "1582-10-20 12:30:15", "0001-01-01"]
    times = []
    rng = random.Random(SEED)
    for calendar in CALENDARS:
        for date in dates:
            for unit in ("days", "hours", "seconds"):
                units = f"{unit} since {date}"
                values = [0, 1, 59, 60, 365, 366, 1461, -1, -400, -100_000]
                values += [rng.randrange(-(10**5), 10**5) for _ in range(20)]
                if unit == "seconds":
                    values = [value * 7919 for value in values]
                if date.startswith("0001"):
                    values = [abs(value) for value in values]
                moments = [cftime.num2date(value, units, calendar) for value in values]
                texts = [moment.strftime("%Y-%m-%d %H:%M:%S").strip().rjust(19, "0") for moment in moments]
                times.append({"calendar": calendar, "units": units, "values": values, "texts": texts})
    packed = []
    packings: list[tuple[str, dict[str, Any]]] = [
        ("int16", {"scale_factor": 0.01, "add_offset": 273.15, "_FillValue": -32768}),
        ("int8", {"_Unsigned": "true", "_FillValue": -1, "scale_factor": 0.5}),
        ("float32", {"_FillValue": float(np.float32(1e20)), "missing_value": -999.0}),
        ("uint8", {"add_offset": -10.0}),
        ("int32", {"missing_value": 5}),
    ]
    for dtype, attributes in packings:
        stored = np.array([0, 1, 2, 5, 100, -1 % 256 if dtype == "uint8" else -1], dtype=dtype)
        stored = np.append(stored, np.asarray([attributes.get("_FillValue", 3)]).astype(dtype))
        data = xr.conventions.decode_cf(xr.Dataset({"v": ("x", stored, dict(attributes))}))
        decoded = [None if np.isnan(value) else float(value) for value in data["v"].values.astype("f8")]
        packed.append(
            {"dtype": dtype, "attributes": attributes, "stored": stored.tolist(), "values": decoded}
        )
    (folder / "cf.json").write_text(json.dumps({"times": times, "packed": packed}))


def write_frames(folder: Path) -> None:
    """Frames of zstd of all levels, with and without dictionary."""
    rng = random.Random(SEED)
    folder.mkdir()
    numbers = [rng.randrange(3_000_000) for _ in range(4000)]
    locations = [
        f"s3://bucket/year={2000 + n // 100_000}/station-{n % 100_000:05}.nc".encode() for n in numbers
    ]
    trained = zstandard.train_dictionary(8192, list[Any](locations))
    (folder / "dictionary").write_bytes(trained.as_bytes())
    contents = [b"", b"a", bytes(300_000), rng.randbytes(200_000), b"|".join(locations)]
    contents += [locations[0], locations[1][:9]]
    contents += [np.cumsum(np.random.default_rng(2).normal(size=200_000)).astype("f4").round(1).tobytes()]
    for spread in range(1, 41):
        values = [int(rng.expovariate(1 / spread)) for _ in range(rng.randrange(3000))]
        contents.append(bytes(min(255, value) for value in values))
    names = []
    for number, content in enumerate(contents):
        (folder / f"{number}.raw").write_bytes(content)
        for level in (-5, 1, 3, 9, 19):
            for dictionary in (None, trained):
                options: dict[str, Any] = {"dict_data": dictionary} if dictionary else {}
                compressor = zstandard.ZstdCompressor(
                    level=level, write_content_size=level % 2 == 0, write_checksum=level == 9, **options
                )
                name = f"{number}.{level}{'.dictionary' if dictionary else ''}.zst"
                (folder / name).write_bytes(compressor.compress(content))
                names.append(name)
    (folder / "names.json").write_text(json.dumps(names))


def write_history(folder: Path) -> None:
    """An array of many commits, with the commit of each chunk: of all commits, and after an expiration."""
    rng = np.random.default_rng(SEED)
    repo = frazil.Repository.create(str(folder / "whole"))
    session = repo.writable_session("main")
    options: dict[str, Any] = {"shape": (24, 18), "chunks": (3, 3), "dtype": "f8"}
    zarr.create_array(session.store, name="a", **options)[:20] = 1.0
    zarr.create_array(session.store, name="other", shape=(4,), dtype="i4")[:] = 1
    session.commit("create")
    times = []
    for number in range(12):
        session = repo.rearrange_session("main") if number == 6 else repo.writable_session("main")
        path = "b" if number > 6 else "a"
        if number == 6:
            session.move("/a", "/b")
        else:
            row, column = rng.integers(0, 20), rng.integers(0, 15)
            values = np.full((4, 3), number + 2.0)
            zarr.open_array(session.store, path=path)[row : row + 4, column : column + 3] = values
        (session.amend if number == 4 else session.commit)(f"step {number}")
        times.append(next(iter(repo.ancestry(branch="main"))).written_at)

    def blame(of: frazil.Repository) -> dict[str, str | None]:
        answer = of.history.blame("/b")
        names = [None if each.is_before else each.snapshot_id for each in answer.commits]
        cells = zip(answer.index.tolist(), answer.number.tolist(), strict=True)
        return {",".join(map(str, cell)): names[number] for cell, number in cells}

    def past(of: frazil.Repository) -> dict[str, list[Any]]:
        """The commits that wrote the first cell of each chunk, and its value after each."""
        found = {}
        for chunk in of.history.blame("/b").index.tolist():
            cell = tuple(3 * at for at in chunk)
            commits = [each.snapshot_id for each in of.history.history_of("/b", cell) if not each.is_before]
            values = []
            for id_ in commits:
                session = of.readonly_session(snapshot_id=id_)
                names = dict(zarr.open_group(session.store, mode="r").arrays())
                values.append(float(frazil.read(session, "b" if "b" in names else "a", cell)))
            found[",".join(map(str, cell))] = [list(each) for each in zip(commits, values, strict=True)]
        return found

    shutil.copytree(folder / "whole", folder / "expired")
    expired = frazil.Repository.open(str(folder / "expired"))
    expired.expire_snapshots(times[7])
    lost = [each.id for each in repo.ancestry(branch="main") if each.message in ("step 2", "step 9")]
    merged = frazil.Repository.create(str(folder / "merged"))
    with merged.transaction("main", message="create") as store:
        zarr.create_array(store, name="b", **options)[:20] = 1.0
    merged.create_branch("dev", "main")
    merged.create_branch("other", "main")
    # Both sides change one chunk: its values are the work of the merge
    writes = [("dev", 0), ("dev", 6), ("main", 9), ("other", 12), ("main", 0)]
    for number, (branch, rows) in enumerate(writes):
        with merged.transaction(branch, message=f"write {number}") as store:
            zarr.open_array(store, path="b")[rows : rows + 3, number : number + 1] = number + 2.0
    merged.merge("other", "dev", solver=frazil.ElementSolver())
    merged.merge("dev", "main", solver=frazil.ElementSolver())
    with merged.transaction("main", message="last") as store:
        zarr.open_array(store, path="b")[6:9, 9:12] = 9.0
    answers = {"whole": blame(repo), "expired": blame(expired), "merged": blame(merged), "lost": lost}
    ids = {each.message: each.id for branch in ("main", "dev") for each in merged.ancestry(branch=branch)}
    pasts = {"whole": past(repo), "expired": past(expired), "merged": past(merged)}
    (folder / "expected.json").write_text(json.dumps({**answers, "past": pasts, "messages": ids}))


def write_statistics(folder: Path) -> None:
    """Arrays with statistics of most chunks, what numpy says about them, and damaged statistics."""
    rng = np.random.default_rng(SEED)
    arrays: dict[str, tuple[Any, dict[str, Any]]] = {
        "packed": (rng.integers(-5, 99, (20, 14), "i2"), {"scale_factor": -0.5, "_FillValue": -1}),
        "floats": (np.where(rng.random((20, 14)) < 0.2, np.nan, rng.normal(size=(20, 14))), {}),
        "large": (rng.integers(-(2**62), 2**62, (20, 14)), {}),
        "shards": (rng.integers(0, 250, (20, 14), "u1"), {}),
        "time": (np.sort(rng.integers(0, 9999, 50)), {"units": "hours since 2020-01-01"}),
        "unsigned": (rng.integers(-128, 128, (20, 14), "i1"), {"_Unsigned": "true", "_FillValue": -1}),
        "literals": (
            rng.choice(np.array([0.1, 1e20, 3.0, 5.5], "f4"), (20, 14)),
            {"_FillValue": 1e20, "missing_value": [0.1, "NaN"]},
        ),
        "refilled": (rng.integers(0, 3, (20, 14), "i4"), {"_FillValue": 1}),
    }
    for is_on in (False, True):
        config = frazil.RepositoryConfig(chunks=frazil.ChunksConfig(statistics=is_on))
        repo = frazil.Repository.open_or_create(str(folder / "ice"), config=config)
        with repo.transaction("main", message=f"statistics: {is_on}") as store:
            for name, (values, attributes) in arrays.items():
                if is_on:
                    array = zarr.open_array(store, path=name)
                    array[: 4 * array.chunks[0]] = values[: 4 * array.chunks[0]]
                    continue
                options: dict[str, Any] = {"shards": (6, 6)} if name == "shards" else {}
                chunks = (3, 6) if values.ndim == 2 else (8,)
                zarr.create_array(
                    store, name=name, data=values, chunks=chunks, attributes=attributes, **options
                )
    repo.upkeep.build_statistics(paths=["/shards"])
    with repo.transaction("main", message="another fill value") as store:
        zarr.open_array(store, path="refilled").attrs["_FillValue"] = 2
    expected: dict[str, dict[str, list[float | None] | None]] = {}
    for name, (values, attributes) in arrays.items():
        data = (values.view("u1") if name == "unsigned" else values).astype("f8")
        missing: dict[str, Any] = {"unsigned": [255], "literals": np.array([0.1, 1e20], "f4")}
        data[np.isin(data, missing.get(name, [attributes.get("_FillValue", np.inf)]))] = np.nan
        size = {"time": (8,), "shards": (6, 6)}.get(name, (3, 6))
        facts_of = expected[f"/{name}"] = {}
        for at in np.ndindex(*(-(-n // m) for n, m in zip(values.shape, size, strict=True))):
            region = tuple(slice(i * m, (i + 1) * m) for i, m in zip(at, size, strict=True))
            part = data[region]
            key, rows = ",".join(map(str, at)), region[0]
            is_known = name == "shards" or rows.stop <= (32 if name == "time" else 12)
            is_known &= name != "refilled"
            some = part[~np.isnan(part)]
            facts = [float(each) for each in (some.min(), some.max(), some.mean())]
            facts_of[key] = [*facts, float(np.isnan(part).mean())] if is_known else None
    shutil.copytree(folder / "ice", folder / "damaged")
    for path in (folder / "damaged" / "statistics").iterdir():
        data = bytearray(path.read_bytes())
        data[-3] ^= 1
        path.write_bytes(bytes(data))
    shutil.copytree(folder / "ice", folder / "later")
    for path in (folder / "later" / "statistics").iterdir():
        path.write_bytes(with_more_columns(path.read_bytes()))
    (folder / "expected.json").write_text(json.dumps(expected))


def with_more_columns(data: bytes) -> bytes:
    """Return a file of statistics of a later version, with columns between the others."""
    end = 44 + int.from_bytes(data[40:44], "little")
    header, frames = json.loads(data[44:end]), list[bytes]()
    for array in header["arrays"]:
        columns, end = zstandard.decompress(data[end : end + array["size"]]), end + array["size"]
        rows, (name, *known) = array["rows"] * array["tiles"], array["columns"][0]
        later = [["zeros", "<u8", []], ["sketch", "|V3", [2, 2]]]
        array["columns"] = [[name, *known], *later, *array["columns"][1:]]
        frames.append(zstandard.compress(columns[:rows] + bytes(rows * (8 + 12)) + columns[rows:]))
        array |= {"size": len(frames[-1]), "later": True}
    text = json.dumps(header).encode()
    body = len(text).to_bytes(4, "little") + text + b"".join(frames)
    return data[:8] + hashlib.sha256(body).digest() + body


def write_sparse(folder: Path) -> None:
    """Arrays of very many chunks, of which few are stored, and one with four chunks."""
    repo = frazil.Repository.create(str(folder))
    step = -(-(2**31) // 1500)
    with repo.transaction("main", message="create") as store:
        wide = zarr.create_array(store, name="wide", shape=(2**31, 2**31), chunks=(1, 1), dtype="u1")
        for at in ((0, 0), (5, 5), (step, step), (1400 * step, 0)):
            wide[at] = 7
        long = zarr.create_array(store, name="long", shape=(10**9,), chunks=(1,), dtype="u1")
        long[60_000] = 7
        zarr.create_array(store, name="empty", shape=(2**31, 2**31), chunks=(1, 1), dtype="u1")
        values = np.random.default_rng(SEED).random((40, 40))
        zarr.create_array(store, name="four", data=values, chunks=(20, 20), compressors=None)
    with repo.transaction("main", message="shards") as store:
        zarr.create_array(store, name="shards", data=values, chunks=(10, 10), shards=(20, 40))


def write_layout(folder: Path) -> None:
    """Write what both readers must agree on: numbers and names of the format, of errors and of the server."""
    rng = random.Random(SEED)
    ids = [rng.randbytes(size) for size in (8, 12) for _ in range(20)]
    slots = {"versions": ["from_version", "to_version"], "flag": ["id", "new_value", "is_set"]}
    layout = {
        "magic": list(MAGIC),
        "header": HEADER_BYTES,
        "types": {kind.name: kind.value for kind in FileType},
        "updates": [
            [kind.name, len([slot for name in names for slot in slots.get(name, [name])])]
            for kind, names in FIELDS_OF.items()
        ],
        "ids": [[list(each), str(id_texts(np.frombuffer(each, np.uint8)[None])[0])] for each in ids],
        "errors": [kind.value for kind in ErrorKind],
        "commands": sorted(COMMANDS),
        "plans": plans(folder / "repository"),
    }
    (folder / "layout.json").write_text(json.dumps(layout))


def plans(folder: Path) -> dict[str, Any]:
    """Return what the server answers to requests for plans, for a repository with two branches."""
    repo = frazil.Repository.create(frazil.local_filesystem_storage(str(folder)))
    with repo.transaction("main", message="first") as store:
        zarr.create_array(store, name="t", data=np.arange(8.0), chunks=(2,))
        zarr.create_array(store, name="old", data=np.arange(2.0))
    tip = repo.lookup_branch("main")
    repo.create_branch("dev", tip)
    with repo.transaction("dev", message="second") as store:
        zarr.open_array(store, path="t")[:4] = -1
        zarr.create_group(store, path="g")
        del zarr.open_group(store)["old"]
    requests = [
        {"action": "merge", "branch": "main", "version": "dev"},
        {"action": "revert", "branch": "dev", "version": repo.lookup_branch("dev")},
        {"action": "branch", "name": "new", "version": "dev"},
        {"action": "undo"},
    ]
    out = {}
    for request in requests:
        change = Change.of(request, is_plan=True)
        with contextlib.redirect_stdout(io.StringIO()) as text:
            run_command(change.arguments(Target(str(folder)), is_plan=True))
        out[request["action"]] = json.loads(
            planned(change, CommandResult(text.getvalue().encode(), True)).text
        )
    return out


def main(folder: Path) -> None:
    """Write all of it below the folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for path in sorted(GOLDEN.glob("*.zip")):
        with zipfile.ZipFile(path) as archive:
            archive.extractall(folder / "golden" / path.stem)
    for number, version in enumerate((2, 1)):
        target = folder / "random" / f"v{version}"
        target.mkdir(parents=True)
        write_random(target, version, SEED + number)
    write_cf(folder)
    write_frames(folder / "zstd")
    write_history(folder / "history")
    write_statistics(folder / "statistics")
    write_sparse(folder / "sparse")
    write_layout(folder / "layout")
    (folder / "done").touch()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
