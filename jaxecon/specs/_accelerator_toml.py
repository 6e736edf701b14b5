"""Accelerators from TOML: the catalogue's files and the user's own. Units stand in the keys."""

import math
import os
import re
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from .._errors import InputError, nearest
from ._accelerator import ALGORITHMS, Accelerator, Efficiencies, Network, PeakRates


class _Number(NamedTuple):
    """How one number is written: its unit, the plausible range, and the field it fills."""

    unit: str
    low: float
    high: float
    field: str
    required: bool = True


_FLOPS = ("FLOP/s, e.g. 9.89e14", 1e11, 1e19)
_LINK = ("bytes/s one-way, e.g. 4.5e11", 1e8, 1e15)
_LATENCY = ("seconds, e.g. 4e-6", 1e-9, 1e-2)
_SHARE = ("a share in (0, 1], e.g. 0.7", 0.01, 1.0)
_DOLLARS = "US dollars per accelerator and hour, e.g. 2.5"
_NUMBERS: dict[str, dict[str, _Number]] = {
    "peak": {
        "bits16_flop_per_s": _Number(*_FLOPS, "peak.bits16"),
        "bits8_flop_per_s": _Number(*_FLOPS, "peak.bits8", False),
        "bits4_flop_per_s": _Number(*_FLOPS, "peak.bits4", False),
    },
    "memory": {
        "hbm_bandwidth_bytes_per_s": _Number("bytes/s, e.g. 3.35e12", 1e9, 1e18, "hbm_bandwidth"),
        "hbm_size_bytes": _Number("bytes, e.g. 8e10", 1e8, 1e15, "hbm_size"),
    },
    "network": {
        "scale_up_bandwidth_bytes_per_s": _Number(*_LINK, "network.scale_up_bandwidth"),
        "scale_out_bandwidth_bytes_per_s": _Number(*_LINK, "network.scale_out_bandwidth"),
        "domain_size": _Number("a count of accelerators, e.g. 8", 1, 1e6, "network.domain_size"),
        "torus_axes": _Number("a count of dimensions, e.g. 3", 1, 6, "network.torus_axes", False),
        "library_latency": _Number("a factor, e.g. 1.0", 0.01, 100, "network.library_latency", False),
        "direct_latency_s": _Number(*_LATENCY, "network.direct_latency", False),
        "scale_up_hop_s": _Number(*_LATENCY, "network.scale_up_hop", False),
        "scale_out_hop_s": _Number(*_LATENCY, "network.scale_out_hop", False),
        "scale_up_efficiency": _Number(*_SHARE, "network.scale_up_efficiency", False),
        "scale_out_efficiency": _Number(*_SHARE, "network.scale_out_efficiency", False),
    },
    "price": {"rental_usd_per_hour": _Number(_DOLLARS, 0.005, 1000.0, "price", False)},
    "power": {"rated_w": _Number("watts, e.g. 700", 2.0, 1e5, "power", False)},
    "efficiency": {
        "arithmetic": _Number(*_SHARE, "arithmetic_efficiency"),
        "memory": _Number(*_SHARE, "memory_efficiency"),
        "kernel_launch_latency_s": _Number(*_LATENCY, "kernel_launch_latency"),
        **{
            f"{kind}_{rate}": _Number(*_SHARE, f"efficiencies.{kind}_{rate}", False)
            for kind in ("attention", "projection", "feed_forward", "expert", "head")
            for rate in ("arithmetic", "memory")
        },
    },
}
_TEXTS = {"network": ("kind",), "price": ("date", "kind")}
_LISTS = {"network": ("algorithms", "engine_algorithms")}
_KINDS = ("nccl", "torus")
_FIELDS = {key: spec for table in _NUMBERS.values() for key, spec in table.items()}


def _only(found: dict[str, Any], valid: tuple[str, ...], file: str, where: str) -> None:
    for key in found:
        if key not in valid:
            raise InputError(f"{file}: unknown key '{where}{key}'; {nearest(key, valid)}")


def _text(table: dict[str, Any], key: str, file: str, where: str = "") -> str:
    if key not in table:
        raise InputError(f"{file}: missing key '{where}{key}', a text")
    value = table[key]
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"{file}: '{where}{key}' is {value!r}; expected a nonempty text")
    return value


def _number(value: Any, spec: _Number, label: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{label} is {value!r}; expected a plain number: {spec.unit}")
    number = float(value) if abs(value) < 1e300 else math.inf
    if not (math.isfinite(number) and number > 0):
        raise InputError(f"{label} is {value!r}; expected a positive number: {spec.unit}")
    if not spec.low <= number <= spec.high:
        raise InputError(f"{label} is {value!r}, which looks like the wrong unit; give {spec.unit}")
    if spec.field == "network.domain_size" and number != int(number):
        raise InputError(f"{label} is {value!r}; expected a whole number: {spec.unit}")
    return number


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_bytes().decode("utf-8"))
    except OSError as error:
        raise InputError(f"cannot read accelerator file {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not valid UTF-8 TOML: {error}") from error


def _parse(data: dict[str, Any], file: str) -> tuple[dict[str, float], dict[str, str]]:
    """Numbers by TOML key; texts by dotted key, sources by TOML key."""
    _only(data, ("name", "source", *_NUMBERS, "sources"), file, "")
    texts = {"name": _text(data, "name", file), "source": _text(data, "source", file)}
    numbers: dict[str, float] = {}
    for name, specs in _NUMBERS.items():
        table = data.get(name, {})
        if not isinstance(table, dict):
            raise InputError(f"{file}: '{name}' is {table!r}; expected a table [{name}]")
        _only(table, (*specs, *_TEXTS.get(name, ()), *_LISTS.get(name, ())), file, f"{name}.")
        for key, spec in specs.items():
            if key in table:
                numbers[key] = _number(table[key], spec, f"{file}: '{name}.{key}'")
            elif spec.required:
                raise InputError(f"{file}: missing key '{name}.{key}', {spec.unit}")
        for key in _TEXTS.get(name, ()):
            if name == "network" or "rental_usd_per_hour" in table:
                texts[f"{name}.{key}"] = _text(table, key, file, f"{name}.")
    kind, date = texts["network.kind"], texts.get("price.date", "2000")
    if kind not in _KINDS:
        raise InputError(f"{file}: 'network.kind' is {kind!r}; {nearest(kind, _KINDS)}")
    if not re.fullmatch(r"\d{4}(-\d{2}){0,2}", date):
        raise InputError(f"{file}: 'price.date' is {date!r}; expected a date such as '2026-04'")
    sources = data.get("sources", {})
    if not isinstance(sources, dict):
        raise InputError(f"{file}: 'sources' is {sources!r}; expected a table [sources]")
    lists = [key for name, keys in _LISTS.items() for key in keys if key in data.get(name, {})]
    _only(sources, (*_FIELDS, *_LISTS["network"]), file, "sources.")
    for key in (*numbers, *lists):
        texts[key] = _text(sources, key, file, "sources.")
    return numbers, texts


def _given_price(value: Any) -> float:
    try:
        price = math.nan if isinstance(value, bool | str) else float(value)
    except (TypeError, ValueError, OverflowError):
        price = math.nan
    if math.isfinite(price) and price > 0:
        return price
    raise InputError(f"price_per_hour is {value!r}; expected {_DOLLARS}")


def _part(values: dict[str, float], prefix: str) -> dict[str, Any]:
    return {f.removeprefix(prefix): v for f, v in values.items() if f.startswith(prefix)}


def _algorithms(data: dict[str, Any], path: Path) -> dict[str, list[str]]:
    """What a file says about collective algorithms; nothing where it is silent."""
    found = {}
    for key in _LISTS["network"]:
        names = data["network"].get(key, [])
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise InputError(f"{path}: 'network.{key}' is {names!r}; expected a list of names")
        for name in set(names) - set(ALGORITHMS):
            raise InputError(f"{path}: 'network.{key}' has {name!r}; {nearest(name, ALGORITHMS)}")
        if key in data["network"]:
            found[key] = names
    return found


def _folder() -> Path:
    from ._catalogue import configs_dir

    return configs_dir() / "accelerators"


def list_accelerators() -> tuple[str, ...]:
    """Names of the catalogue's accelerators, sorted."""
    return tuple(sorted(path.stem for path in _folder().glob("*.toml")))


def _locate(name_or_path: str | os.PathLike[str]) -> Path:
    text, names = str(name_or_path), list_accelerators()
    if text.lower() in names:
        return _folder() / f"{text.lower()}.toml"
    if text.lower().endswith(".toml") or "/" in text or os.sep in text:
        return Path(text)
    raise InputError(f"no accelerator {text!r} in the catalogue; {nearest(text, names)}")


def load_accelerator(
    name_or_path: str | os.PathLike[str],
    *,
    price_per_hour: float | None = None,
) -> Accelerator:
    """An accelerator of the catalogue (name in any case) or of a TOML file.

    `price_per_hour`, US dollars per accelerator and hour, replaces the recorded rental price.
    The file's power may be absent; it is 0 W then, which means unknown.

    Raises:
        InputError: if the name or file is unknown, the file is malformed, a key is unknown,
            missing, of the wrong type or of an implausible magnitude, or no price is known.
    """
    path = _locate(name_or_path)
    data = _read(path)
    numbers, texts = _parse(data, str(path))
    sources = [(_FIELDS[key].field, texts[key]) for key in numbers if key != "rental_usd_per_hour"]
    sources += [(f"network.{key}", texts[key]) for key in _LISTS["network"] if key in texts]
    if price_per_hour is not None:
        price = _given_price(price_per_hour)
        sources.append(("price", "given by the caller"))
    elif "rental_usd_per_hour" in numbers:
        price = numbers["rental_usd_per_hour"]
        note = f"{texts['price.kind']}, {texts['price.date']}: {texts['rental_usd_per_hour']}"
        sources.append(("price", note))
    else:
        cure = "give price_per_hour (CLI: --price-per-hour)"
        raise InputError(f"{texts['name']} has no rental price on record; {cure}")
    values = {_FIELDS[key].field: number for key, number in numbers.items()}
    values["price"] = price / 3600.0
    return Accelerator(
        peak=PeakRates(**_part(values, "peak.")),
        network=Network(**_part(values, "network."), kind=texts["network.kind"], **_algorithms(data, path)),
        efficiencies=Efficiencies(**_part(values, "efficiencies.")),
        name=texts["name"],
        sources=tuple(sources),
        **{field: value for field, value in values.items() if "." not in field},
    )
