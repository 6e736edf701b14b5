"""Where the command line keeps compiled programs. Importing it does not import JAX."""

import atexit
import gc
import os
import platform
import sys
import warnings
import zlib
from pathlib import Path

_COLLECT = 1_000_000, 20, 100
_started = False
"""Whether this process is the command line's own."""


def cache_compilations() -> None:
    """Keep compiled programs in the user's cache folder, unless JAX is told otherwise.

    JAXECON_COMPILATION_CACHE=0 turns this off; JAX_COMPILATION_CACHE_DIR chooses the folder. Must
    run before JAX is imported. Where the folder cannot be written there is no cache. An entry that
    another process is writing, or was killed while writing, fails JAX's checks and is compiled anew.
    """
    global _started
    if "jax" in sys.modules:
        return
    _started = True
    # Imports and traces make a few hundred thousand objects that stay. Looking for garbage among them is
    # in vain, and so is taking them apart at the end of the process.
    gc.set_threshold(*_COLLECT)
    atexit.register(gc.freeze)
    # Programs need not say which line of which caller every operation is from: a tenth of a cold start.
    os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")
    folder = cache_folder()
    if folder is None:
        return
    warnings.filterwarnings("ignore", message="Error (reading|writing) persistent compilation cache")
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(folder))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    # Reading the cache logs a harmless note on target features of some processors.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")


def one_question() -> None:
    """Programs of this command run a few times each: compile them quickly, and keep them.

    They lie beside JAX's cache. Only for a process of the command line: a library keeps JAX's options.
    """
    if not _started:
        return
    from .._programs import use_quick_programs

    chosen = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    folder = Path(chosen) if chosen and not _turned_off() else cache_folder()
    if folder is not None:
        folder = folder / f"programs-{_processor()}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            folder = None
    use_quick_programs(folder)


def cache_folder() -> Path | None:
    """The folder, made if need be; None where it is turned off or cannot be written."""
    if _turned_off():
        return None
    try:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        folder = base / "jaxecon" / _processor()
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return None
    return folder if os.access(folder, os.W_OK) else None


def _turned_off() -> bool:
    return os.environ.get("JAXECON_COMPILATION_CACHE") == "0"


def _processor() -> str:
    """What compiled programs depend on: hosts with one home folder may differ in it."""
    kind = platform.machine() or "unknown"
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return f"{kind}-{zlib.crc32(platform.processor().encode()):08x}"
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return f"{kind}-{zlib.crc32(flags.encode()):08x}"
