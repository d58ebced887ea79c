"""The README's Python runs, as it stands there, from top to bottom."""

import re
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def test_the_examples_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    parts = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert len(parts) == 5
    names = {}
    exec(compile("\n".join(parts), str(README), "exec"), names)
    assert capsys.readouterr().out.startswith("273.15 275.15\n")
    assert names["report"].ok
    assert names["again"].done_before
    rain = names["zarr"].open_group(names["repo"].readonly_session("main").store, mode="r")["precipitation"]
    assert rain[::24, 0, 0].tolist() == [100, 101, *range(2, 10)]
