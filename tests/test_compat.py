"""Frazil installed as icechunk, in fresh interpreters: this one may have imported the published one."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from importlib.metadata import version

import pytest
from tests.support.patience import patience


def run(program: str) -> list[str]:
    """The lines that a program prints; every warning is an error in it."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=patience(60),
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.deep
def test_everything_public_is_frazils() -> None:
    assert run("""
        import frazil.compat
        module = frazil.compat.install_as_icechunk()
        import icechunk, icechunk.session, icechunk.store
        from icechunk.repository import Repository
        from icechunk.dask import store_dask
        from icechunk.xarray import to_icechunk
        assert module is icechunk and frazil.compat.install_as_icechunk() is icechunk
        assert icechunk.session is frazil.session and icechunk.session.__name__ == "frazil.session"
        assert icechunk.Repository is Repository is frazil.Repository
        assert [name for name in icechunk.__all__ if getattr(icechunk, name) is None] == []
        assert set(frazil.__all__) <= set(dir(icechunk))
        print(icechunk)
        print(store_dask.__module__, to_icechunk.__module__)
    """) == [f"<module 'icechunk' 2.3.0, given by Frazil {version('frazil')}>", "frazil.dask frazil.xarray"]


@pytest.mark.deep
def test_versions() -> None:
    lines = run("""
        from importlib import metadata
        from importlib.util import find_spec
        import frazil.compat
        before = frazil.__version__
        frazil.compat.install_as_icechunk()
        import icechunk
        from packaging.version import Version
        print(Version(icechunk.__version__) >= Version("2.3.0"), metadata.version("icechunk"))
        print(frazil.__version__ == before == metadata.metadata("icechunk")["Summary"].split()[-1])
        print(find_spec("icechunk").name, find_spec("icechunk.types").name)
        for name in ("_icechunk_python", "format", "spark", "nothing", "testing._x"):
            assert find_spec(f"icechunk.{name}") is None, name
        print(list(metadata.files("icechunk") or ()), metadata.version("numpy") != "2.3.0")
    """)
    assert lines == ["True 2.3.0", "True", "icechunk icechunk.types", "[] True"]


@pytest.mark.deep
def test_it_comes_before_an_installed_one_and_can_be_taken_back() -> None:
    assert run("""
        import sys, types
        import frazil.compat
        before = list(sys.meta_path)
        frazil.compat.install_as_icechunk()
        import icechunk.config
        frazil.compat.uninstall_as_icechunk()
        print([name for name in sys.modules if name.startswith("icechunk")], sys.meta_path == before)
        frazil.compat.uninstall_as_icechunk()
        sys.modules["icechunk"] = published = types.ModuleType("icechunk")
        published.__version__ = "2.3.0"
        try:
            frazil.compat.install_as_icechunk()
        except frazil.SessionStateError as error:
            is_named = "icechunk 2.3.0 is already imported" in str(error)
            print(error.kind, is_named, sys.modules["icechunk"] is published)
    """) == ["[] True", "not-allowed True True"]


@pytest.mark.deep
@pytest.mark.parametrize("installed", [False, True])
def test_pickles_are_read_by_processes_that_did_not_install_it(installed: bool) -> None:
    assert run(f"""
        import pickle, subprocess, sys
        import frazil.compat
        frazil.compat.install_as_icechunk()
        import icechunk
        import cloudpickle, zarr
        repo = icechunk.Repository.create(icechunk.in_memory_storage())
        error = icechunk.ConflictError("A", "B")

        def work():
            return icechunk.__version__, icechunk.Repository.__module__.partition(".")[0]

        cloudpickle.register_pickle_by_value(sys.modules["__main__"])
        config = icechunk.RepositoryConfig.default()
        sent = cloudpickle.dumps([config, error, icechunk.ChunkType.native, work])
        script = "import frazil.compat; frazil.compat.install_as_icechunk();" if {installed} else ""
        script += "import pickle, sys; got = pickle.load(sys.stdin.buffer);"
        script += "print(type(got[0]).__module__, type(got[1]).__name__, got[1].args, got[2], got[3]())"
        done = subprocess.run([sys.executable, "-c", script], input=sent, stdout=subprocess.PIPE, check=True)
        print(done.stdout.decode().strip())
    """) == [
        "frazil.repository.settings.config ConflictError ('A', 'B') ChunkType.native ('2.3.0', 'frazil')"
    ]
