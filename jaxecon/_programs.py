"""Compiled programs for processes that run each of them a few times: quick to compile, and kept on disk.

A library call compiles with JAX's own options and keeps nothing. A command that answers one question
says `use_quick_programs(folder)`: its programs are then compiled without the passes that pay only when a
program runs many times, and saved as machine code, so that the next process neither traces, lowers
nor compiles. JAX's own compilation cache saves the last of the three only.

A saved program is used only for the same function with arguments of the same structure, shapes and
types, by the same sources of this package on the same versions of what compiled it (`_origin`). It
holds machine code, as JAX's cache does: the folder must be one that only its user can write.
"""

import dataclasses
import enum
import functools
import hashlib
import os
import pickle
import platform
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar

import equinox as eqx
import jax
import jaxlib
from jax.experimental import serialize_executable

from .specs._label import Label, Notes

P = ParamSpec("P")
T = TypeVar("T")

QUICK = {
    "xla_backend_optimization_level": 0,
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": 1,
}
"""XLA's options on a CPU: a sixth to a third of the time to compile, twice the time to run."""

# In machine code that calls a library such as LAPACK, which JAX prepares only while it lowers a program:
# run without, it ends the process. Such functions better keep `eqx.filter_jit`, and JAX's cache.
_FOREIGN = b"custom-call"
# What saving, reading or running someone else's machine code can raise.
_MALFORMED = (ValueError, TypeError, AttributeError, LookupError, EOFError, ImportError, pickle.PickleError)
_REFUSALS = (OSError, RuntimeError, *_MALFORMED)


class _Opaque(TypeError):
    """A part of the arguments that no text describes for sure."""


class Program(Generic[P, T]):
    """`eqx.filter_jit` of a function, and by `use_quick_programs` its saved compilations."""

    def __init__(self, function: Callable[P, T]) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.name = f"{function.__module__}.{function.__qualname__}"
        self.compiled: Any = eqx.filter_jit(function)

    @property
    def _cached(self) -> Any:
        """JAX's own cache of compilations."""
        return self.compiled._cached

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        if _Quick.programs is None or kwargs:
            return self.compiled(*args, **kwargs)
        return _Quick.programs(self, args)


def program(function: Callable[P, T]) -> Program[P, T]:
    """Decorator in place of `eqx.filter_jit` for functions that commands run a few times."""
    return Program(function)


def use_quick_programs(folder: Path | None) -> None:
    """From now on compile `program`s quickly, and keep them in `folder` unless it is None."""
    if _Quick.programs is None or _Quick.programs.folder != folder:
        _Quick.programs = _Quick(folder)


def use_library_programs() -> None:
    """Undo `use_quick_programs`."""
    _Quick.programs = None


@dataclasses.dataclass
class _Runnable:
    """A compiled program from arrays to arrays, and what its result looks like."""

    run: Callable[..., list[Any]]
    shape: Any
    """The result, with a `_Hole` for each array."""
    saved: bool
    """Whether it was read from disk, and has not yet run."""

    def __post_init__(self) -> None:
        self.leaves, self.structure = jax.tree.flatten(self.shape)

    def __call__(self, arrays: list[Any]) -> Any:
        found = iter(self.run(*arrays))
        leaves = [next(found) if isinstance(x, _Hole) else x for x in self.leaves]
        return jax.tree.unflatten(self.structure, leaves)


class _Hole:
    """Where an array goes."""


class _Quick:
    """The programs of one process."""

    programs: "_Quick | None" = None

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.known: dict[Any, _Runnable] = {}

    def __call__(self, program: Program[Any, T], args: tuple[Any, ...]) -> T:
        leaves, structure = jax.tree.flatten(args)
        if any(isinstance(x, jax.core.Tracer) for x in leaves):
            return program.compiled(*args)
        key = (program.name, structure, tuple(map(_kind, leaves)))
        arrays = [x for x in leaves if eqx.is_array(x)]
        one = self.known.get(key)
        if one is None:
            path, label = self._place(program, args)
            one = _read(path, label, len(arrays)) or _build(program, leaves, structure, path, label)
            self.known[key] = one
        if not one.saved:
            return one(arrays)
        one.saved = False
        try:
            return one(arrays)
        except _REFUSALS:
            self.known[key] = one = _build(program, leaves, structure, *self._place(program, args))
            return one(arrays)

    def _place(self, program: Program[Any, Any], args: tuple[Any, ...]) -> tuple[Path | None, str]:
        """(file, what it must be made for); no file where the arguments cannot be told for sure."""
        if self.folder is None:
            return None, ""
        try:
            text = described((program.name, args))
        except _Opaque:
            return None, ""
        name = f"{program.name.rpartition('.')[2]}-{hashlib.sha256(text.encode()).hexdigest()[:32]}.program"
        return self.folder / name, f"{_origin()}\n{text}"


def _kind(leaf: Any) -> Any:
    """What a compilation depends on: shape and type of an array, any other leaf itself."""
    if eqx.is_array(leaf):
        return leaf.shape, leaf.dtype, bool(getattr(leaf, "weak_type", False))
    return type(leaf), leaf


def described(x: Any, static: bool = False) -> str:
    """All that a compilation depends on in an argument, as text: never the same for two structures.

    Labels are left out, since they compare equal. `static` values count as they are.

    Raises:
        TypeError: for a value of a type of which that is not known.
    """
    if x is None or type(x) in (bool, int, float, str):
        return repr(x)
    if type(x) in (Label, Notes):
        return type(x).__name__
    if eqx.is_array(x) and not static:
        shape, dtype, weak = _kind(x)
        return f"{dtype}{list(shape)}{'weak' if weak else ''}"
    name = f"{type(x).__module__}.{type(x).__qualname__}"
    if isinstance(x, enum.Enum):
        return f"{name}.{x.name}"
    if isinstance(x, tuple | list):
        return f"{name}({', '.join(described(y, static) for y in x)})"
    if type(x) is dict:
        return f"{name}({', '.join(f'{described(k, True)}: {described(v, static)}' for k, v in x.items())})"
    if isinstance(x, eqx.Module) and dataclasses.is_dataclass(x):
        return f"{name}({', '.join(_fields(x, static))})"
    raise _Opaque(f"no text describes a {name} for sure")


def _fields(x: Any, static: bool) -> Iterable[str]:
    for field in dataclasses.fields(x):
        fixed = static or field.metadata.get("static", False)
        yield f"{field.name}={described(getattr(x, field.name), fixed)}"


@functools.cache
def _origin() -> str:
    """What made a program beside its function's arguments: sources, compilers, options, hardware."""
    sources = hashlib.sha256()
    package = Path(__file__).parent
    for path in sorted(package.rglob("*.py")):
        content = path.read_bytes()
        sources.update(f"{path.relative_to(package)} {len(content)}\n".encode() + content)
    client = jax.devices()[0].client
    values = {k: v for k, v in jax.config.values.items() if "cache" not in k}
    flags = {k: v for k, v in os.environ.items() if k.startswith(("XLA_", "LIBTPU_"))}
    versions = (platform.python_version(), jax.__version__, jaxlib.__version__, eqx.__version__)
    hardware = (client.platform, client.platform_version, jax.devices()[0].device_kind, len(jax.devices()))
    options = sorted(flags.items()), sorted(values.items(), key=str)
    return f"{sources.hexdigest()} {versions} {hardware} {options}"


def _build(
    program: Program[Any, Any], leaves: list[Any], structure: Any, path: Path | None, label: str
) -> _Runnable:
    """Trace, lower and compile; save where there is a path."""
    shape: Any = None

    def flat(*arrays: Any) -> list[Any]:
        nonlocal shape
        given = iter(arrays)
        all_ = [next(given) if eqx.is_array(x) else x for x in leaves]
        found, tree = jax.tree.flatten(program.function(*jax.tree.unflatten(structure, all_)))
        shape = jax.tree.unflatten(tree, [_Hole() if eqx.is_array(x) else x for x in found])
        return [x for x in found if eqx.is_array(x)]

    flat.__name__ = program.function.__name__
    arrays = [x for x in leaves if eqx.is_array(x)]
    compiled = _compiled(jax.jit(flat).lower(*arrays))
    if path is not None:
        # Before the first run, after which some programs can no longer be written.
        _write(path, label, compiled, shape)
    return _Runnable(compiled, shape, saved=False)


def _compiled(lowered: jax.stages.Lowered) -> Callable[..., list[Any]]:
    """Compiled quickly, but for options that this release of XLA does not know."""
    options = dict(QUICK) if jax.default_backend() == "cpu" else {}
    with _Unkept():
        while True:
            try:
                return lowered.compile(options)
            except jax.errors.JaxRuntimeError as error:
                unknown = next((k for k in options if f"'{k}'" in str(error)), None)
                if unknown is None:
                    raise
                del options[unknown]


class _Unkept:
    """While any thread is inside, JAX's cache takes nothing: what comes from it cannot be saved again."""

    name = "jax_persistent_cache_min_compile_time_secs"
    lock, inside, before = threading.Lock(), 0, 0.0

    def __enter__(self) -> None:
        with _Unkept.lock:
            if _Unkept.inside == 0:
                _Unkept.before = getattr(jax.config, self.name)
                jax.config.update(self.name, float("inf"))
            _Unkept.inside += 1

    def __exit__(self, *error: object) -> None:
        with _Unkept.lock:
            _Unkept.inside -= 1
            if _Unkept.inside == 0:
                jax.config.update(self.name, _Unkept.before)


def _write(path: Path, label: str, compiled: Any, shape: Any) -> None:
    """Save under a name of its own, then rename: a reader sees all of a file or none."""
    part = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}.part")
    try:
        code = serialize_executable.serialize(compiled)[0]
        if _FOREIGN in code:
            return
        content = pickle.dumps((label, code, shape))
        part.write_bytes(hashlib.sha256(content).digest() + content)
        part.replace(path)
    except _REFUSALS:
        part.unlink(missing_ok=True)


def _read(path: Path | None, label: str, count: int) -> _Runnable | None:
    """A saved program of `count` arrays; None where there is none, or another's, or a damaged one."""
    if path is None:
        return None
    try:
        content = path.read_bytes()
        if hashlib.sha256(content[32:]).digest() != content[:32]:
            return None
        made_for, code, shape = pickle.loads(content[32:])
        if made_for != label:
            return None
        holes = sum(isinstance(x, _Hole) for x in jax.tree.leaves(shape))
        trees = jax.tree.structure(((0,) * count, {})), jax.tree.structure([0] * holes)
        one = jax.local_devices()[:1]
        run = serialize_executable.deserialize_and_load(code, *trees, execution_devices=one)
    except _REFUSALS:
        return None
    return _Runnable(run, shape, saved=True)
