"""What a sweep asks: scenarios by structure, which leaves vary, and the columns of the result."""

import hashlib
import itertools
from collections.abc import Mapping
from functools import cache, cached_property
from typing import Any

import jax
import numpy as np

from .. import __version__
from .._errors import InputError, nearest
from ..scenarios import Erdil2025, Scenario, Serving
from ..specs import Layout, Speculation, Workload, load_accelerator, load_model
from ._config import Axis, SweepConfig
from ._points import Points

_ZERO_ALLOWED = ("context", "kernel_launch_latency", "engine_overhead", "price", "power", "reserve")
_SHARES = ("acceptance", "reserve", "arithmetic_efficiency", "memory_efficiency")
_COST_MODELS = ("serving", "erdil2025")


class Structure:
    """Scenarios that differ in numbers only: one compilation serves them all."""

    def __init__(self, treedef: Any, names: list[str]) -> None:
        self.treedef, self.names = treedef, names
        self.rows: list[np.ndarray] = []
        self.values = np.zeros((0, len(names)))
        """Leaves of every combination, shape (combinations, leaves)."""
        self.varies = np.zeros(len(names), bool)
        self.shaping: list[int] = []

    def scenario(self, leaves: Any) -> Scenario:
        """A scenario from its leaves in order."""
        return jax.tree.unflatten(self.treedef, list(leaves))


class Plan:
    """A checked sweep.

    Raises:
        InputError: for a name, leaf or value that cannot be used.
    """

    def __init__(self, config: SweepConfig) -> None:
        self.config = config
        self.combinations = [
            dict(zip(config.scenario, values, strict=True))
            for values in itertools.product(*config.scenario.values())
        ]
        self.points = Points(config, len(self.combinations))
        self.structures: list[Structure] = []
        self.home: list[tuple[int, int]] = []
        """(structure, row in it) of each combination."""
        self._place()
        self._check_axes()
        self.elasticities = self._elasticities()
        self._degrees: dict[tuple[Any, ...], tuple[Layout, ...]] = {}
        for structure in self.structures:
            self._find_shaping(structure)
        self.chunks = -(-self.points.rows // config.rows_per_chunk)

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the file's content and of every number that it stands for."""
        digest = hashlib.sha256(self.config.text.encode())
        for structure in self.structures:
            digest.update(repr(structure.names).encode())
            digest.update(structure.values.tobytes())
        return digest.hexdigest()

    def provenance(self) -> dict[str, Any]:
        """What the result came from."""
        return {
            "jaxecon_version": __version__,
            "config_sha256": self.hash,
            "seed": self.config.seed,
            "jax_version": jax.__version__,
            "rows": self.points.rows,
            "config": self.config.text,
        }

    def range_of(self, chunk: int) -> tuple[int, int]:
        """First row of a chunk, and the one after its last."""
        size = self.config.rows_per_chunk
        return chunk * size, min((chunk + 1) * size, self.points.rows)

    def degrees_of(self, structure: Structure, row: int, leaves: np.ndarray) -> tuple[Layout, ...]:
        """Legal degrees of one scenario, remembered by what shapes them."""
        shape = tuple(leaves[structure.shaping].tolist())
        key = (id(structure), row, shape)
        if key not in self._degrees:
            for place, value in zip(structure.shaping, shape, strict=True):
                if value != int(value):
                    raise InputError(f"'{structure.names[place]}' must be whole numbers, got {value:g}")
            scenario = structure.scenario(np.asarray(x) for x in leaves)
            found = scenario.degrees(self.config.max_accelerators)
            self._degrees[key] = jax.tree.map(np.asarray, found)
        return self._degrees[key]

    def _place(self) -> None:
        """Build every combination once, and sort them by structure."""
        loader = _Loader()
        index: dict[Any, int] = {}
        for options in self.combinations:
            scenario = loader.scenario(options)
            pairs, treedef = jax.tree_util.tree_flatten_with_path(scenario)
            if treedef not in index:
                index[treedef] = len(self.structures)
                names = [jax.tree_util.keystr(path).lstrip(".") for path, _ in pairs]
                self.structures.append(Structure(treedef, names))
            structure = self.structures[index[treedef]]
            self.home.append((index[treedef], len(structure.rows)))
            structure.rows.append(np.array([float(x) for _, x in pairs]))
        for structure in self.structures:
            structure.values = np.stack(structure.rows)
            structure.varies |= np.any(structure.values != structure.values[:1], axis=0)

    def _check_axes(self) -> None:
        for axis in self.config.axes:
            for structure in self.structures:
                if axis.name != "budget":
                    place = self.place(structure, axis.name)
                    structure.varies[place] = True
                    _check_values(axis, structure.values[:, place])

    def place(self, structure: Structure, name: str) -> int:
        """Index of a leaf.

        Raises:
            InputError: naming the nearest leaf, where there is none of that name.
        """
        if name not in structure.names:
            row = self.structures.index(structure)
            example = next(c for c, h in zip(self.combinations, self.home, strict=True) if h[0] == row)
            what = f"the scenario of {example['model']} on {example['accelerator']}"
            raise InputError(f"{what} has no leaf '{name}'; {nearest(name, structure.names)}")
        return structure.names.index(name)

    def _elasticities(self) -> tuple[str, ...]:
        if "elasticities" not in self.config.outputs:
            return ()
        names = self.config.elasticities or tuple(a.name for a in self.config.axes)
        for structure in self.structures:
            for name in names:
                if name != "budget":
                    self.place(structure, name)
        return names

    def _find_shaping(self, structure: Structure) -> None:
        """Which swept leaves the list of legal degrees depends on: those whose absence changes it."""
        leaves = structure.values[0]
        swept = [self.place(structure, a.name) for a in self.config.axes if a.name != "budget"]
        usual = self.degrees_of(structure, 0, leaves)
        for place in swept:
            poisoned = leaves.copy()
            poisoned[place] = np.nan
            try:
                scenario = structure.scenario(np.asarray(x) for x in poisoned)
                found = scenario.degrees(self.config.max_accelerators)
                same = all(map(np.array_equal, jax.tree.leaves(found), jax.tree.leaves(usual)))
            except (ValueError, OverflowError):
                same = False
            if not same:
                structure.shaping.append(place)
        self._degrees.clear()


class _Loader:
    """Scenarios from options; models and accelerators are read once."""

    def __init__(self) -> None:
        self.model, self.accelerator = cache(load_model), cache(load_accelerator)

    def scenario(self, options: Mapping[str, Any]) -> Scenario:
        """The scenario of one combination.

        Raises:
            InputError: where a name or number cannot be used.
        """
        kind = options.get("cost_model", "serving")
        if kind not in _COST_MODELS:
            raise InputError(f"cost_model {kind!r} is unknown; {nearest(kind, _COST_MODELS)}")
        bits = {k: options[k] for k in ("weight_bits", "kv_bits") if k in options}
        model = self.model(options["model"], **bits)
        price = {k: options[k] for k in ("price_per_hour",) if k in options}
        accelerator = self.accelerator(options["accelerator"], **price)
        workload = Workload(
            options.get("context", 4096.0), options.get("output", 512.0), options.get("demand")
        )
        draft = self.model(options["draft"], **bits) if "draft" in options else None
        acceptance, longest = options.get("acceptance", 0.7), int(options.get("max_draft_tokens", 8))
        if kind == "erdil2025":
            paper = {"draft": draft, "acceptance": acceptance, "gamma_max": longest} if draft else {}
            return Erdil2025(
                model, accelerator, workload, **paper, revision=options.get("revision", "2024-09")
            )
        speculation = Speculation(draft, acceptance, longest) if draft else None
        return Serving(
            model, accelerator, workload, speculation=speculation, reserve=options.get("reserve", 0.1)
        )


def _check_values(axis: Axis, base: np.ndarray) -> None:
    """Whether every value on an axis is possible for its leaf, whatever the combination."""
    last = axis.name.rsplit(".", 1)[-1]
    for value in axis.values:
        for number in value.number * base if value.relative else [value.number]:
            zero = last in _ZERO_ALLOWED or last in _SHARES or bool(np.all(base == 0))
            low = number >= 0 if zero else number > 0
            high = number <= 1 if last in _SHARES else np.isfinite(number)
            if last == "output":
                low = number >= 1
            if last == "reserve":
                high = number < 1
            if not (low and high):
                raise InputError(f"'{axis.name}' cannot be {number:g}")
