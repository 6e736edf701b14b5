"""Results on disk: chunks written whole or not at all, and the file they are joined to.

Beside `results.csv` lies the folder `results.csv.parts` while a sweep runs: `manifest.json` with the
provenance, and one file per completed chunk, whose first line holds the checksum of the rest. A
file appears under its name only when it is complete (written aside, flushed to disk, renamed), so
that a process killed at any moment leaves whole chunks only. At the end the chunks are joined in
order, `results.csv.json` records the provenance, and the folder goes away.
"""

import errno
import hashlib
import itertools
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from .._errors import InputError


class Store:
    """The files of one sweep.

    Args:
        out: the final file, .csv or .parquet.
        provenance: what identifies the sweep; compared with that of earlier results.
        header: the line of column names.
        chunks: how many chunks there are.
    """

    def __init__(self, out: Path, provenance: dict[str, Any], header: str, chunks: int) -> None:
        self.out, self.provenance, self.header, self.chunks = out, provenance, header, chunks
        self.folder = Path(f"{out}.parts")
        self.manifest = self.folder / "manifest.json"
        self.record = Path(f"{out}.json")
        self._lock: IO[str] | None = None

    def finished(self) -> bool:
        """Whether the final file is there and is of this sweep.

        Raises:
            InputError: where it, or what is left of a run, is of another sweep or damaged.
        """
        if self.record.exists():
            found = _read_json(self.record)
            self._compare(found, self.out)
            if not self.out.exists():
                raise InputError(f"'{self.record}' tells of '{self.out}', which is gone; delete the former")
            if _digest_of(self.out) != found.get("sha256"):
                raise InputError(f"'{self.out}' was changed after it was written; move it away")
            self._clear()
            return True
        if self.manifest.exists():
            self._compare(_read_json(self.manifest), self.folder)
        elif self.out.exists():
            raise InputError(f"'{self.out}' exists and is no result of this sweep; choose another --out")
        return False

    def open(self) -> None:
        """Create the folder and its manifest, and remove what a killed process left unfinished.

        Raises:
            InputError: where that is impossible, or another run is writing.
        """
        with _named_errors(self.folder, self._progress):
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = (self.folder / "lock").open("w")
            _exclusive(self._lock, self.out)
            for left in self.folder.glob("*.tmp-*"):
                left.unlink()
            if not self.manifest.exists():
                _write_whole(self.manifest, json.dumps(self.provenance, indent=1).encode())

    def close(self) -> None:
        """Let other runs write."""
        if self._lock is not None:
            self._lock.close()

    def missing(self) -> list[int]:
        """Chunks that are not there; those that are have been verified.

        Raises:
            InputError: naming a chunk whose checksum differs.
        """
        missing = []
        for chunk in range(self.chunks):
            if self._path(chunk).exists():
                self._body(chunk)
            else:
                missing.append(chunk)
        return missing

    def write(self, chunk: int, text: str) -> None:
        """Put the rows of a completed chunk on disk.

        Raises:
            InputError: where the disk is full or the folder cannot be written.
        """
        body = text.encode()
        seal = f"{hashlib.sha256(body).hexdigest()} chunk {chunk}\n".encode()
        with _named_errors(self._path(chunk), self._progress):
            _write_whole(self._path(chunk), seal + body)

    def join(self) -> None:
        """Join all chunks to the final file, record the provenance, remove the folder.

        Raises:
            InputError: where a chunk is damaged, the disk is full, or pyarrow is missing.
        """
        temporary = self.folder / f"joined.tmp-{os.getpid()}"
        with _named_errors(self.out, self._progress), _removed_on_failure(temporary):
            bodies = (self._body(chunk) for chunk in range(self.chunks))
            if self.out.suffix == ".parquet":
                from ._parquet import write_parquet

                write_parquet(temporary, self.header, bodies, self.provenance)
                digest = _digest_of(temporary)
            else:
                digest = _write_hashed(temporary, itertools.chain([self.header.encode()], bodies))
            _flush(temporary)
            os.replace(temporary, self.out)
            record = json.dumps(self.provenance | {"sha256": digest}, indent=1)
            _write_whole(self.record, record.encode())
        self._clear()

    def _path(self, chunk: int) -> Path:
        return self.folder / f"{chunk:08d}.csv"

    def _body(self, chunk: int) -> bytes:
        path = self._path(chunk)
        try:
            seal, _, body = path.read_bytes().partition(b"\n")
        except OSError as error:
            raise InputError(f"cannot read '{path}': {error.strerror}") from error
        if seal.decode(errors="replace") != f"{hashlib.sha256(body).hexdigest()} chunk {chunk}":
            raise InputError(
                f"chunk '{path}' is corrupt: its checksum differs; delete it and run the same command again"
            )
        return body

    def _compare(self, found: dict[str, Any], where: Path) -> None:
        for key, value in self.provenance.items():
            if found.get(key) != value:
                what = key.replace("_", " ")
                raise InputError(
                    f"'{where}' holds results of another sweep ({what} {found.get(key)!r:.70}, now "
                    f"{value!r:.70}); choose another --out, or delete them"
                )

    def _progress(self) -> str:
        done = sum(self._path(chunk).exists() for chunk in range(self.chunks))
        return f"{done} of {self.chunks} chunks are done"

    def _clear(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def _write_whole(path: Path, content: bytes) -> None:
    """Write a file so that it appears complete or not at all."""
    temporary = path.with_name(f"{path.name}.tmp-{os.getpid()}")
    try:
        temporary.write_bytes(content)
        _flush(temporary)
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    _flush(path.parent)


def _write_hashed(path: Path, parts: Iterable[bytes]) -> str:
    """Write the parts of a file; its checksum."""
    digest = hashlib.sha256()
    with path.open("wb") as file:
        for part in parts:
            file.write(part)
            digest.update(part)
    return digest.hexdigest()


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _named_errors(path: Path, progress: Any) -> Iterator[None]:
    """Turn failures of the file system into a sentence with the cure."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise InputError(
                f"the disk is full: '{path}' could not be written; {progress()}; free some space and "
                "run the same command again"
            ) from error
        raise InputError(f"cannot write '{path}': {error.strerror}") from error


@contextmanager
def _removed_on_failure(path: Path) -> Iterator[None]:
    try:
        yield
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _exclusive(lock: IO[str], out: Path) -> None:
    """Hold a lock for as long as this process lives; systems without such locks go without."""
    try:
        import fcntl
    except ImportError:
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InputError(f"another process is writing '{out}'; wait for it or choose another --out") from None
    except OSError:
        return


def _digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read '{path}': {error}; delete it") from error
    return found if isinstance(found, dict) else {}
