"""Packages whose modules are imported with the first use of a name."""

import subprocess
import sys
from importlib import import_module

import pytest

LAZY = ("jaxecon", "jaxecon.optimum", "jaxecon.calibration", "jaxecon.scenarios", "jaxecon.report")


@pytest.mark.parametrize("package", LAZY)
def test_every_name_is_found_and_listed(package):
    module = import_module(package)
    assert module.__all__ and set(module.__all__) <= set(dir(module))
    for name in module.__all__:
        assert getattr(module, name) is not None
    absent = "no_such_name"
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute '{absent}'"):
        getattr(module, absent)


def test_a_command_imports_what_it_uses():
    """A command waits for all of its imports: neither the fit nor the paper's model is among them."""
    code = "import sys, jaxecon.cli._optimize, jaxecon.cli._question; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = set(found.stdout.split())
    assert "jaxecon.optimum._relaxed_optimum" in modules
    unused = ("optimum._many", "optimum._envelope", "calibration._fit", "scenarios._erdil2025")
    assert not modules & {f"jaxecon.{name}" for name in unused}
