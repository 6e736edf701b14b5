"""Session settings: 64-bit, strict promotion, shared compilations, and where the reference tables lie."""

import atexit
import os
import shutil
import tempfile
from pathlib import Path

# Workers and subprocesses compile a program once between them.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    os.environ["JAX_COMPILATION_CACHE_DIR"] = tempfile.mkdtemp(prefix="jaxecon-tests-")
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.3"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    atexit.register(shutil.rmtree, os.environ["JAX_COMPILATION_CACHE_DIR"], ignore_errors=True)

import jaxecon  # noqa: F401  # first, so that 64-bit mode is on before JAX starts
import jax
import pytest

jax.config.update("jax_numpy_dtype_promotion", "strict")


@pytest.fixture(scope="session")
def reference() -> Path:
    folder = Path(__file__).resolve().parents[2] / "shared" / "reference"
    if not folder.is_dir():
        pytest.skip("the reference tables lie in ../shared, which is absent")
    return folder


@pytest.fixture
def run(monkeypatch, capsys):
    """Call the command line with words: (exit code, what it printed, what it complained of)."""
    from jaxecon.cli import main

    def call(*words):
        monkeypatch.setattr("sys.argv", ["jaxecon", *map(str, words)])
        with pytest.raises(SystemExit) as stop:
            main()
        captured = capsys.readouterr()
        return stop.value.code, captured.out, captured.err

    return call
