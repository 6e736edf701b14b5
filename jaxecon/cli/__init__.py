"""The command line. Importing it does not import JAX."""

from . import _research as _research  # adds its commands to those of `_app`
from ._app import main as main
