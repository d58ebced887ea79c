"""The references of a very large array of virtual chunks."""

from __future__ import annotations

import gc
import importlib
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from measure import Measured, peak_mib, scratch

LENGTH = 4096


def at_scale(implementation: str, references: int) -> Measured:
    """Measure setting and committing references, looking up some in a new session, and changing one."""
    icechunk = importlib.import_module(implementation)
    out = Measured()
    with scratch() as root:

        def storage() -> Any:
            return icechunk.local_filesystem_storage(root)

        config = icechunk.RepositoryConfig.default()
        config.set_virtual_chunk_container(
            icechunk.VirtualChunkContainer("s3://bucket/", icechunk.s3_store(region="us-east-1"))
        )
        repo = icechunk.Repository.create(storage(), config)
        session = repo.writable_session("main")
        side = references // 1000
        zarr.create_array(
            session.store,
            name="v",
            shape=(side, 1000),
            chunks=(1, 1),
            dtype="f4",
            compressors=None,
            filters=None,
        )
        locations = [f"s3://bucket/model/run-{i // 1000:06d}/file.nc" for i in range(references)]
        offsets = (np.arange(references, dtype="u8") % 1000) * LENGTH + 512
        lengths = np.full(references, LENGTH, "u8")
        before = peak_mib()
        with out.seconds_of_all("set and commit"):
            session.store.set_virtual_refs_arr("v", (side, 1000), locations, offsets, lengths)
            session.commit("references")
        out["peak memory, MiB"] = peak_mib()
        out["peak memory over the inputs, MiB"] = peak_mib() - before
        files = (Path(root) / "manifests").iterdir()
        out["manifest, MiB"] = sum(file.stat().st_size for file in files) / 2**20
        del locations, offsets, lengths, session, repo
        gc.collect()

        with out.seconds("open"):
            repo = icechunk.Repository.open(storage())
            session = repo.readonly_session("main")
        with out.seconds("first lookup"):
            session.chunk_type("/v", [side - 1, 7])
        with out.microseconds_each("a lookup after that", 1000):
            for k in range(1000):
                session.chunk_type("/v", [k % side, 13])
        with out.seconds("all locations"):
            found = session.all_virtual_chunk_locations()
        assert len(found) == references
        del found
        repo = icechunk.Repository.open(storage())
        session = repo.writable_session("main")
        with out.seconds("change one, cold, and commit"):
            session.store.set_virtual_ref("v/c/0/5", "s3://bucket/model/new.nc", offset=1, length=LENGTH)
            session.commit("one")
        session = repo.writable_session("main")
        with out.seconds("change another and commit"):
            session.store.set_virtual_ref("v/c/0/6", "s3://bucket/model/new.nc", offset=1, length=LENGTH)
            session.commit("another")
    return out


def many_arrays(implementation: str, arrays: int, references: int, split: int = 0) -> Measured:
    """Measure one commit that changes many arrays of virtual references, and then a small one.

    Args:
        implementation: The package.
        arrays: The number of arrays.
        references: The number of references of all arrays together.
        split: The number of references of a manifest. 0 leaves the default of the implementation.

    Returns:
        The measurements.
    """
    icechunk = importlib.import_module(implementation)
    out = Measured()
    count = references // arrays
    shape = (count // 100, 100)
    with scratch() as root:
        config = icechunk.RepositoryConfig.default()
        config.set_virtual_chunk_container(
            icechunk.VirtualChunkContainer("s3://bucket/", icechunk.s3_store(region="us-east-1"))
        )
        if split:
            by_step = {icechunk.ManifestSplitDimCondition.Axis(0): split // 100}
            sizes = {icechunk.ManifestSplitCondition.AnyArray(): by_step}
            splitting = icechunk.ManifestSplittingConfig.from_dict(sizes)
            config.manifest = icechunk.ManifestConfig(splitting=splitting)
        repo = icechunk.Repository.create(icechunk.local_filesystem_storage(root), config)
        session = repo.writable_session("main")
        group = zarr.create_group(session.store)
        for number in range(arrays):
            group.create_array(f"v{number}", shape=shape, chunks=(1, 1), dtype="f4")
        session.commit("arrays")
        session = repo.writable_session("main")
        rows = np.arange(shape[0] * 100, dtype="u8")
        offsets, lengths = rows % 100 * LENGTH + 512, np.full(len(rows), LENGTH, "u8")
        names = [f"s3://bucket/model/run-{row // 100:06d}/file.nc" for row in range(len(rows))]
        before = peak_mib()
        with out.seconds_of_all("set and commit"):
            with out.seconds("of that set"):
                for number in range(arrays):
                    session.store.set_virtual_refs_arr(f"v{number}", shape, names, offsets, lengths)
            session.commit("references")
        out["peak memory over the inputs, MiB"] = peak_mib() - before
        session = repo.writable_session("main")
        with out.seconds_of_all("change one of each array and commit"):
            for number in range(arrays):
                name = f"v{number}/c/0/5"
                session.store.set_virtual_ref(name, "s3://bucket/model/new.nc", offset=1, length=LENGTH)
            session.commit("one of each")
        files = [file.stat() for file in (Path(root) / "manifests").iterdir()]
        out["manifests, MiB"] = sum(file.st_size for file in files) / 2**20
    return out


def codec(implementation: str, references: int, locations: int) -> Measured:
    """Measure encoding and decoding a manifest, without storage or session."""
    from frazil.format.manifest import ChunkTable, Manifest, decode_manifest, encode_manifest

    assert implementation == "frazil"
    each = references // locations
    texts = [f"s3://bucket/model/run-{i // each:08d}/file.nc" for i in range(references)]
    rows = np.arange(references)
    index = np.stack((rows // 1000, rows % 1000), axis=1)
    table = ChunkTable.from_virtual(index, texts, rows * LENGTH, LENGTH)
    out = Measured()
    with out.seconds("encode"):
        data = encode_manifest(Manifest(bytes(12), {bytes(8): table}))
    with out.seconds("decode"):
        manifest = decode_manifest(data, "manifest")
        found = manifest.arrays[bytes(8)]
    assert len(found) == references
    out["file, MiB"] = len(data) / 2**20
    return out


def real_sets(implementation: str, kind: str, references: int) -> Measured:
    """Measure the files of one commit of references like those of an archive, or of a table in Parquet.

    Args:
        implementation: The package, or ``Parquet`` for a table of locations, offsets and lengths with zstd.
        kind: ``hours``: 744 hours in each file. ``files``: a file for each chunk, with times in its name.
        references: The number of references.
    """
    random, rows = np.random.default_rng(1), np.arange(references)
    lengths = random.normal(1_400_000, 60_000, references).astype("u8")
    if kind == "hours":
        months = np.datetime_as_string(
            np.datetime64("1940-01", "M") + np.arange(references // 744 + 1)
        ).tolist()
        names = [
            f"s3://bucket/era5/{each[:4]}/e5.oper.an.sfc.128_167_2t.ll025sc.{each}.nc" for each in months
        ]
        locations = np.array(names, object)[rows // 744].tolist()
        ends = np.cumsum(lengths)
        offsets = ends - lengths - (ends - lengths)[rows // 744 * 744] + np.uint64(40_000)
    else:
        start = (
            np.datetime64("2018-01-01T00:00:20.0", "ms")
            + rows * 300_000
            + random.integers(0, 9, references) * 100
        )
        steps = (random.integers(1560, 1590, references), random.integers(350, 650, references))
        times = [start, start + steps[0] * 100, start + (steps[0] + steps[1]) * 100]
        texts = [np.datetime_as_string(each).tolist() for each in times]
        locations = [
            "s3://bucket/ABI-L2-MCMIPC/{}/OR_ABI-L2-MCMIPC-M6_G16_s{}_e{}_c{}.nc".format(
                each[0][:10], *(digits.translate(_DIGITS) for digits in each)
            )
            for each in zip(*texts, strict=True)
        ]
        offsets = 31_000 + random.integers(0, 2, references).astype("u8") * 128
    out = Measured()
    with scratch() as root:
        if implementation == "Parquet":
            import pyarrow as pa  # type: ignore[import-untyped]
            import pyarrow.parquet as pq  # type: ignore[import-untyped]

            table = pa.table({"location": locations, "offset": offsets, "length": lengths})
            with out.seconds_of_all("set and commit"):
                pq.write_table(table, f"{root}/refs.parquet", compression="zstd")
            sizes = {"all files": Path(root)}
        else:
            icechunk = importlib.import_module(implementation)
            repo = icechunk.Repository.create(icechunk.local_filesystem_storage(root))
            session = repo.writable_session("main")
            zarr.create_array(
                session.store, name="v", shape=(references, 1), chunks=(1, 1), dtype="f4", compressors=None
            )
            with out.seconds_of_all("set and commit"):
                session.store.set_virtual_refs_arr(
                    "v", (references, 1), locations, offsets, lengths, validate_containers=False
                )
                session.commit("references")
            folders = {"manifests": "manifests", "log": "transactions"}
            sizes = {name: Path(root) / folder for name, folder in folders.items()} | {
                "all files": Path(root)
            }
        for name, folder in sizes.items():
            total = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
            out[f"{name}, bytes for a reference"] = total / references
    return out


_DIGITS = str.maketrans("", "", "-T:.")
