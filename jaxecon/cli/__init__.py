"""The command line. Importing it does not import JAX."""

from ._app import main as main
