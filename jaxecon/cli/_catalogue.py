"""What `jaxecon models` and `jaxecon accelerators` print."""

from typing import Any

from rich.console import Console
from rich.table import Table

from ..specs import list_accelerators, list_models, load_accelerator, load_model


def model_rows() -> list[dict[str, Any]]:
    """One mapping per model of the catalogue."""
    rows = []
    for name in list_models():
        model = load_model(name)
        rows.append(
            {
                "name": name,
                "parameters": int(model.total_parameters),
                "active_parameters": int(model.active_parameters),
                "kv_bytes_at_4096_tokens": int(model.kv_cache_bytes(4096)),
                "source": str(model.source),
            }
        )
    return rows


def accelerator_rows() -> list[dict[str, Any]]:
    """One mapping per accelerator of the catalogue; a missing price is null."""
    rows = []
    for name in list_accelerators():
        free = load_accelerator(name, price_per_hour=1.0)
        sources = dict(load_accelerator(name, price_per_hour=1.0).sources)
        rows.append(
            {
                "name": name,
                "hbm_size_bytes": float(free.hbm_size),
                "hbm_bandwidth_bytes_per_s": float(free.hbm_bandwidth),
                "peak_16_bit_flop_per_s": float(free.peak.bits16),
                "price_usd_per_hour": _price(name),
                "source": sources.get("hbm_bandwidth", ""),
            }
        )
    return rows


def _price(name: str) -> float | None:
    from .._errors import InputError

    try:
        return round(float(load_accelerator(name).price_per_hour), 6)
    except InputError:
        return None


def show_rows(rows: list[dict[str, Any]]) -> None:
    """Print rows as a table with large numbers shortened."""
    table = Table(*(key.replace("_", " ") for key in rows[0]))
    for row in rows:
        table.add_row(*(_short(v) for v in row.values()))
    Console().print(table)


def _short(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return "give one"
    return f"{value:.4g}" if value < 1e4 else f"{value:.4g}".replace("e+", "e")
