"""Parquet by pyarrow, which is optional: `pip install 'jaxecon[parquet]'`."""

import importlib
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .._errors import InputError

_TEXTS = (
    "status layout.partition relaxed.status relaxed.layout.partition jaxecon_version config_sha256 "
    "model accelerator draft cost_model revision"
).split()
_WHOLE = (
    "row seed certificate.examined layout.accelerators layout.tensor layout.pipeline layout.expert "
    "layout.data layout.batch layout.draft_tokens"
).split()


def require_pyarrow() -> None:
    """Raise an InputError unless pyarrow can be imported."""
    try:
        importlib.import_module("pyarrow")
    except ImportError:
        cure = "pip install 'jaxecon[parquet]', or name a .csv file"
        raise InputError(f"Parquet needs pyarrow: {cure}") from None


def write_parquet(path: Path, header: str, bodies: Iterable[bytes], provenance: dict[str, Any]) -> None:
    """Write the rows of chunks, one row group each, with the provenance in the schema.

    An absent figure is null.
    """
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    names = header.strip().split(",")
    texts, whole = dict.fromkeys(_TEXTS, pa.string()), dict.fromkeys(_WHOLE, pa.int64())
    kinds = {name: (texts | whole).get(name, pa.float64()) for name in names}
    reading = pa.csv.ReadOptions(column_names=names)
    converting = pa.csv.ConvertOptions(column_types=kinds)
    notes = {f"jaxecon.{k}": str(v) for k, v in provenance.items()}
    writer = None
    for body in bodies:
        rows = pa.csv.read_csv(io.BytesIO(body), read_options=reading, convert_options=converting)
        if writer is None:
            schema = rows.schema.with_metadata(notes)
            writer = pa.parquet.ParquetWriter(path, schema, compression="zstd")
        writer.write_table(rows.replace_schema_metadata(notes))
    if writer is not None:
        writer.close()
