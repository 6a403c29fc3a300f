"""The README's Python snippet, as it stands."""
import re
import shutil

from conftest import ROOT


def test_the_snippet_runs(folder, tmp_path, monkeypatch, capsys):
    (snippet,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    (tmp_path / "new").mkdir()
    for path in sorted(folder.iterdir())[:5]:
        shutil.copy(path, tmp_path / "new")
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(compile(snippet, "README.md", "exec"), names)
    assert names["nb"].shape == (len(names["features"]), 10)
    assert len(names["model"].labels_) == 48
    assert (tmp_path / "report.html").stat().st_size > 10_000
