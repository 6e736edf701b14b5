"""The compilation cache of the command line: on by default, and never in the way."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
EXPLAIN = "explain --model llama-3.1-8b --accelerator h100-sxm --layout tensor=1,batch=8 --json".split()


def start(cache, words=EXPLAIN, **environment):
    environment = os.environ | {"XDG_CACHE_HOME": str(cache), "PYTHONPATH": str(ROOT)} | environment
    for name in ("JAX_COMPILATION_CACHE_DIR", "TF_CPP_MIN_LOG_LEVEL"):  # JAX sets the latter here
        environment.pop(name, None)
    main = [sys.executable, "-c", "from jaxecon.cli import main; main()", *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(main, env=environment, **pipes)


def finish(process):
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0 and err == ""
    return json.loads(out)


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """(cache, answer) after two processes began with the same empty cache at the same time."""
    cache = tmp_path_factory.mktemp("cache")
    first, second = (finish(p) for p in [start(cache), start(cache)])
    assert first == second
    return cache, first


def entries(cache):
    return sorted((cache / "jaxecon").rglob("*.program"))


def test_used_by_default(filled):
    cache, answer = filled
    before = [(p, p.stat().st_mtime_ns) for p in entries(cache)]
    assert before and finish(start(cache)) == answer
    assert [(p, p.stat().st_mtime_ns) for p in entries(cache)] == before


def test_damaged_entries_are_compiled_anew(filled):
    cache, answer = filled
    for i, path in enumerate(entries(cache)):
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2] if i % 2 else b"")
    assert finish(start(cache)) == answer


def test_off_or_unwritable(filled, tmp_path):
    file = tmp_path / "file"
    file.write_text("no folder")
    off = start(tmp_path / "off", JAXECON_COMPILATION_CACHE="0")
    unwritable = start(file)
    assert finish(off) == finish(unwritable) == filled[1]
    assert list(tmp_path.iterdir()) == [file]


def test_help_does_not_import_jax():
    code = "import sys\nfrom jaxecon.cli import main\ntry: main()\nexcept SystemExit: pass\n"
    code += "print(sorted({'jax', 'numpy', 'matplotlib', 'scipy'} & set(sys.modules)))"
    for words in (["--help"], ["sweep", "--help"], ["optimize", "--help"]):
        shown = subprocess.run(
            [sys.executable, "-c", code, *words],
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
        )
        assert shown.returncode == 0 and shown.stdout.splitlines()[-1] == "[]"


def test_a_sweep_does_not_import_what_draws(tmp_path):
    code = "import sys\nimport jaxecon.cli._sweep, jaxecon.cli._optimize, jaxecon.sweep._solve\n"
    code += "print(sorted({'matplotlib', 'scipy.stats', 'optax', 'pandas'} & set(sys.modules)))"
    shown = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert shown.stdout.strip() == "[]", shown.stderr
