"""A module imports only from the layers below its own, and stays small."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "jaxecon"
ORDER = ["_lazy", "_errors", "_numerics", "specs", "_programs", "cost", "scenarios", "optimum", "calibration"]
ORDER += ["sensitivity", "sweep", "report", "cli"]
MODULES = sorted(p for p in PACKAGE.rglob("*.py") if p.parent != PACKAGE or p.stem in ORDER)


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_down(path):
    inside = path.relative_to(PACKAGE)
    own = ORDER.index(inside.parts[0].removesuffix(".py"))
    for node in ast.walk(ast.parse(path.read_text())):
        depth = len(inside.parts)
        if isinstance(node, ast.ImportFrom) and node.level == depth and node.module:
            layer = node.module.split(".")[0]
            limit = own if depth > 1 else own - 1
            assert ORDER.index(layer) <= limit, f"{inside} imports {layer}"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_rooms_are_small(path):
    assert len(path.read_text().splitlines()) <= 450
