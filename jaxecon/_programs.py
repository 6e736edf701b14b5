"""Compiled programs for processes that run each of them a few times: quick to compile, and kept on disk.

A library call compiles with JAX's own options and keeps nothing. A command that answers one question
says `use_quick_programs(folder)`: its programs are then compiled without the passes that pay only when a
program runs many times, and saved as machine code, so that the next process neither traces, lowers
nor compiles. JAX's own compilation cache saves the last of the three only.

A command's programs are compiled, or read, in threads of their own, so that one that is `prepare`d is
compiled while the next is traced.

A saved program is used only for the same function with arguments of the same structure, shapes and
types, by the same sources of this package on the same versions of what compiled it (`_origin`). It
holds machine code, as JAX's cache does: the folder must be one that only its user can write.
"""

import contextlib
import dataclasses
import enum
import functools
import hashlib
import os
import pickle
import platform
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
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
    """A jitted function, and by `use_quick_programs` its saved compilations."""

    def __init__(self, function: Callable[P, T], jit: Callable[..., Any] = eqx.filter_jit) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.name = f"{function.__module__}.{function.__qualname__}"
        self.compiled: Any = jit(function)

    @property
    def stages(self) -> tuple["Program[..., Any]", ...]:
        """What runs one after the other, each with the results of those before it as last arguments."""
        return (self,)

    @property
    def _cached(self) -> Any:
        """JAX's own cache of compilations."""
        return getattr(self.compiled, "_cached", self.compiled)

    def prepare(self, *args: Any) -> None:
        """In a command's process begin to compile for such arguments, or arrays' shapes in their place.

        What fails here fails again, and is reported, where the program is called.
        """
        if _Quick.programs is not None:
            with contextlib.suppress(Exception):
                _Quick.programs.prepare(self, args)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        if _Quick.programs is None or kwargs:
            return self.compiled(*args, **kwargs)
        return _Quick.programs(self, args)


def program(function: Callable[P, T]) -> Program[P, T]:
    """Decorator in place of `eqx.filter_jit` for functions that commands run a few times."""
    return Program(function)


def array_program(function: Callable[P, T]) -> Program[P, T]:
    """The same for arguments and results that are arrays, or modules of nothing else, as scenarios are:
    JAX's own dispatch takes half as long, which counts where a program runs for a millisecond."""
    return Program(function, jax.jit)


class _Staged(Program[P, T]):
    """See `staged`."""

    def __init__(self, functions: tuple[Callable[..., Any], ...]) -> None:
        def composed(*args: Any) -> Any:
            found: list[Any] = []
            for function in functions:
                found.append(function(*args, *found))
            return found[-1]

        # Not `functools.wraps`: its arguments are not those of the last function.
        for name in ("__module__", "__name__", "__qualname__", "__doc__"):
            setattr(composed, name, getattr(functions[-1], name))
        super().__init__(composed)
        self._stages = tuple(Program(function) for function in functions)

    @property
    def stages(self) -> tuple[Program[..., Any], ...]:
        return self._stages


def staged(*functions: Callable[..., Any]) -> Program[..., Any]:
    """One program of functions that are called one after the other with the same arguments and, behind
    them, the results of those before; the last result is the program's.

    A library compiles them as one. In a command each is compiled while the next is traced.
    """
    return _Staged(functions)


def use_quick_programs(folder: Path | None) -> None:
    """From now on compile `program`s quickly, and keep them in `folder` unless it is None."""
    if _Quick.programs is None or _Quick.programs.folder != folder:
        _Quick.programs = _Quick(folder)


def use_library_programs() -> None:
    """Undo `use_quick_programs`."""
    _Quick.programs = None


@dataclasses.dataclass
class _Begun:
    """A program from arrays to arrays that is being compiled or read, and what its result looks like."""

    future: Future[Callable[..., list[Any]]]
    shape: Any
    """The result, with a `jax.ShapeDtypeStruct` for each array."""
    saved: bool
    """Whether it was read from disk, and has not yet run."""

    def __post_init__(self) -> None:
        self.leaves, self.structure = jax.tree.flatten(self.shape)

    def __call__(self, arrays: list[Any]) -> Any:
        found = iter(self.future.result()(*arrays))
        leaves = [next(found) if _is_shape(x) else x for x in self.leaves]
        self.saved = False
        return jax.tree.unflatten(self.structure, leaves)


def _is_shape(leaf: Any) -> bool:
    return isinstance(leaf, jax.ShapeDtypeStruct)


def _is_array(leaf: Any) -> bool:
    """An array or what stands for one."""
    return eqx.is_array(leaf) or _is_shape(leaf)


class _Quick:
    """The programs of one process."""

    programs: "_Quick | None" = None

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.known: dict[Any, _Begun] = {}
        self.pool = ThreadPoolExecutor(os.cpu_count())

    def __call__(self, program: Program[Any, T], args: tuple[Any, ...]) -> T:
        if any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves(args)):
            return program.compiled(*args)
        if len(program.stages) > 1:
            program.prepare(*args)
        found: list[Any] = []
        for stage in program.stages:
            found.append(self._run(stage, (*args, *found)))
        return found[-1]

    def prepare(self, program: Program[Any, Any], args: tuple[Any, ...]) -> None:
        """Begin all stages of a program."""
        found: list[Any] = []
        for stage in program.stages:
            found.append(self._begin(stage, (*args, *found)).shape)

    def _run(self, program: Program[Any, Any], args: tuple[Any, ...]) -> Any:
        begun = self._begin(program, args)
        arrays = [x for x in jax.tree.leaves(args) if eqx.is_array(x)]
        if not begun.saved:
            return begun(arrays)
        try:
            return begun(arrays)
        except _REFUSALS:
            return self._begin(program, args, anew=True)(arrays)

    def _begin(self, program: Program[Any, Any], args: tuple[Any, ...], anew: bool = False) -> _Begun:
        """The program for such arguments, or the beginning of one; `anew` where what is saved is no good."""
        leaves, structure = jax.tree.flatten(args)
        key = (program.name, structure, tuple(map(_kind, leaves)))
        begun = None if anew else self.known.get(key)
        if begun is None:
            path, label = self._place(program, args)
            begun = None if anew else self._read(path, label, sum(map(_is_array, leaves)))
            begun = begun or self._build(program, leaves, structure, path, label)
            self.known[key] = begun
        return begun

    def _read(self, path: Path | None, label: str, count: int) -> _Begun | None:
        """A saved program of `count` arrays; None where there is none, or another's, or a damaged one."""
        if path is None:
            return None
        try:
            content = path.read_bytes()
            if hashlib.sha256(content[32:]).digest() != content[:32]:
                return None
            made_for, code, shape = pickle.loads(content[32:])
        except _REFUSALS:
            return None
        if made_for != label:
            return None
        return _Begun(self.pool.submit(_loaded, code, count, shape), shape, saved=True)

    def _build(
        self, program: Program[Any, Any], leaves: list[Any], structure: Any, path: Path | None, label: str
    ) -> _Begun:
        """Trace and lower; compile in a thread, and save where there is a path."""
        shape: Any = None

        def flat(*arrays: Any) -> list[Any]:
            nonlocal shape
            given = iter(arrays)
            all_ = [next(given) if _is_array(x) else x for x in leaves]
            shape = program.function(*jax.tree.unflatten(structure, all_))
            return [x for x in jax.tree.leaves(shape) if eqx.is_array(x)]

        flat.__name__ = program.function.__name__
        traced = jax.jit(flat).trace(*(x for x in leaves if _is_array(x)))
        avals = iter(traced.jaxpr.out_avals)
        shape = jax.tree.map(lambda x: _shape_of(next(avals)) if eqx.is_array(x) else x, shape)
        lowered = traced.lower()

        def compiled() -> Callable[..., list[Any]]:
            found = _compiled(lowered)
            if path is not None:
                # Before the first run, after which some programs can no longer be written.
                _write(path, label, found, shape)
            return found

        return _Begun(self.pool.submit(compiled), shape, saved=False)

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
    if _is_array(leaf):
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
    if _is_array(x) and not static:
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


def _loaded(code: bytes, count: int, shape: Any) -> Callable[..., list[Any]]:
    """Machine code of a program from `count` arrays to those of `shape`."""
    arrays = sum(map(_is_shape, jax.tree.leaves(shape)))
    trees = jax.tree.structure(((0,) * count, {})), jax.tree.structure([0] * arrays)
    return serialize_executable.deserialize_and_load(code, *trees, execution_devices=jax.local_devices()[:1])


def _shape_of(aval: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type)
