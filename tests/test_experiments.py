"""Experiments: public interface only, stated claims, settings beside them; the quick ones are run."""

import ast
import csv
from pathlib import Path

import pytest

from jaxecon.cli._reproduce import ORDER, _module, experiment_names, experiments_folder
from jaxecon.report import Finding, settings, verdict
from jaxecon.report._findings import findings_page

SCRIPTS = sorted(experiments_folder().glob("*.py"))
QUICK = ("collective_size", "collective_batch", "collective_base_latency")


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda p: p.stem)
def test_scripts(path):
    tree = ast.parse(path.read_text())
    doc = ast.get_docstring(tree) or ""
    assert f"python experiments/{path.stem}.py" in doc and f"{path.stem}.csv" in doc
    assert settings(path.stem)["source"]
    for node in ast.walk(tree):
        names = [node.module] if isinstance(node, ast.ImportFrom) else []
        names += [a.name for a in node.names] if isinstance(node, (ast.Import, ast.ImportFrom)) else []
        assert not any(part.startswith("_") for name in names for part in (name or "").split("."))


def test_every_claim_has_its_script():
    assert set(ORDER) <= set(experiment_names()) and len(ORDER) == 14


@pytest.mark.parametrize("name", QUICK)
def test_quick_experiments(name, tmp_path):
    found = _module(name).main(tmp_path)
    assert all(f.verdict.startswith(("holds", "fails")) for f in found)
    assert {p.suffix for p in tmp_path.iterdir()} == {".png", ".svg", ".csv"}
    with (tmp_path / f"{name}.csv").open() as file:
        assert len(list(csv.DictReader(file))) > 2


def test_findings_are_those_of_the_scripts(tmp_path):
    page = (experiments_folder() / "FINDINGS.md").read_text()
    for name in experiment_names():
        assert f"`{name}.py`" in page
    for name in QUICK:
        for f in _module(name).main(tmp_path):
            assert f"| {f.found} |" in page


def test_verdicts():
    assert verdict(2.0, 2.05, 0.2) == "holds"
    assert verdict(2.0, 1.7, 0.2) == "holds within 15 %"
    assert verdict(2.0, 1.0, 0.2) == "fails"


def test_page():
    found = {"a": [Finding("x | y", "1", "2", "fails", "z")], "b": [Finding("c", "", "d", "", "e")]}
    page = findings_page(found)
    assert "| x / y | 1 | 2 | **fails** | z | `a.py` |" in page and "| c | d | e | `b.py` |" in page


def test_folder_is_beside_the_package():
    assert (experiments_folder().parent / "configs" / "experiments").is_dir()
    assert Path(__file__).parents[1] in experiments_folder().parents
