"""The importer, the recipe of conda and the image for Spark agree with the project.

`scripts/build` checks the syntax of the recipe and the image.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml  # type: ignore[import-untyped]
from tests.packaging.package_index import PROJECT, ROOT, USER_EXTRAS, run

import frazil

RECIPE = ROOT / "packaging" / "conda" / "recipe.yaml"
DOCKER = ROOT / "packaging" / "docker"


def bounds(requirements: list[str]) -> set[str]:
    return {re.sub(r"[\s\"]", "", each).split("==")[0] for each in requirements}


def test_the_recipe_has_the_version_and_the_requirements_of_the_wheel() -> None:
    recipe = yaml.safe_load(RECIPE.read_text())
    assert recipe["context"]["version"] == frazil.__version__
    assert bounds(recipe["requirements"]["run"][1:]) == bounds(PROJECT["dependencies"])
    extras = [each for name in USER_EXTRAS for each in PROJECT["optional-dependencies"][name]]
    assert bounds(recipe["requirements"]["run_constraints"]) <= bounds(extras)
    [entry] = recipe["build"]["python"]["entry_points"]
    assert entry == f"frazil = {PROJECT['scripts']['frazil']}"
    lowest = yaml.safe_load(RECIPE.with_name("variants.yaml").read_text())["python_min"]
    assert PROJECT["requires-python"] == f">={lowest[0]}"


def test_the_importer_has_the_version_of_frazil_and_requires_it() -> None:
    project = tomllib.loads((ROOT / "importer" / "pyproject.toml").read_text())["project"]
    assert project["version"] == frazil.__version__
    own, *others = project["dependencies"]
    assert own == f"frazil=={frazil.__version__}"
    assert set(others) <= set(PROJECT["dependencies"])
    assert project["requires-python"] == PROJECT["requires-python"]
    assert (ROOT / "importer" / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_the_image_copies_files_that_its_context_has() -> None:
    text = (DOCKER / "Dockerfile").read_text()
    copied = [
        source
        for line in re.findall(r"^COPY (?!--from)(?:--\S+ )*(.*) \S+$", text, re.MULTILINE)
        for source in line.split()
    ]
    assert copied == ["constraints.txt", "dist/frazil-*.whl", "packaging/docker/entrypoint"]
    context = (DOCKER / "Dockerfile.dockerignore").read_text().splitlines()
    assert context == ["*", "!constraints.txt", "!dist/*.whl", "!packaging/docker/entrypoint"]
    # `scripts/build` makes the wheel; the others are files of the checkout
    assert all((ROOT / source).is_file() for source in copied if not source.startswith("dist/"))
    assert re.findall(r"^USER (.*)$", text, re.MULTILINE)[-1] == "185"


def test_the_image_starts_drivers_executors_and_other_commands(tmp_path: Path) -> None:
    for program in ("bin/java", "bin/spark-submit"):
        (tmp_path / program).parent.mkdir(exist_ok=True)
        (tmp_path / program).write_text('#!/bin/sh\nprintf "%s\\n" "$0" "$@"\n')
        (tmp_path / program).chmod(0o755)
    homes = {"JAVA_HOME": str(tmp_path), "SPARK_HOME": str(tmp_path)}
    pod = {
        "SPARK_DRIVER_URL": "spark://driver:1", "SPARK_EXECUTOR_ID": "7", "SPARK_EXECUTOR_CORES": "2",
        "SPARK_APPLICATION_ID": "app", "SPARK_EXECUTOR_POD_IP": "127.0.0.1", "SPARK_RESOURCE_PROFILE_ID": "0",
        "SPARK_EXECUTOR_POD_NAME": "pod", "SPARK_EXECUTOR_MEMORY": "3g",
        "SPARK_JAVA_OPT_0": "-Da=one two", "SPARK_JAVA_OPT_1": "-Db=3",
    }  # fmt: skip
    entrypoint = DOCKER / "entrypoint"
    java = run(entrypoint, "executor", **homes, **pod).stdout.splitlines()
    assert java[:5] == [f"{tmp_path}/bin/java", "-Da=one two", "-Db=3", "-Xms3g", "-Xmx3g"]
    options = dict(zip(java[8::2], java[9::2], strict=True))
    assert options["--driver-url"] == "spark://driver:1"
    assert options["--executor-id"] == "7"
    submit = run(entrypoint, "driver", "--class", "C", "a b.py", **homes, SPARK_DRIVER_BIND_ADDRESS="::1")
    assert submit.stdout.splitlines()[-3:] == ["--class", "C", "a b.py"]
    assert run(entrypoint, "echo", "a  b").stdout == "a  b\n"
    assert run(entrypoint, "executor", **homes).returncode != 0  # no description of the process
