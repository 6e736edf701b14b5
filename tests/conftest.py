"""Session settings: 64-bit, strict promotion, and where the reference tables lie."""

from pathlib import Path

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
