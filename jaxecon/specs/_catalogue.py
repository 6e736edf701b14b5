"""Where models come from: the catalogue, a Hugging Face config, or a TOML description."""

import json
import tomllib
from pathlib import Path
from typing import Any

from .._errors import InputError, nearest
from ._huggingface import model_from_config
from ._model import Model
from ._model_toml import model_from_description


def configs_dir() -> Path:
    """The folder of the catalogue: inside an installed wheel, else beside the package."""
    package = Path(__file__).resolve().parents[1]
    inside = package / "configs"
    return inside if inside.is_dir() else package.parent / "configs"


def list_models() -> tuple[str, ...]:
    """Names of the catalogue, sorted."""
    return tuple(sorted(p.stem for p in (configs_dir() / "models").glob("*.toml")))


def load_model(name_or_path: str | Path, **precisions: float | None) -> Model:
    """A model by catalogue name, or from a Hugging Face config.json or its folder, or a TOML.

    Args:
        name_or_path: a catalogue name, the path of a config.json, of a TOML, or a folder.
        **precisions: weight_bits, expert_bits, embedding_bits, kv_bits, activation_bits,
            communication_bits, dispatch_bits, compute_bits, attention_bits.

    Raises:
        InputError: for an unknown name, an unreadable file, or a field that makes no sense.
    """
    text = str(name_or_path)
    path = Path(text)
    named = configs_dir() / "models" / f"{text.lower()}.toml"
    if path.is_dir():
        path = path / "config.json"
    if not path.is_file() and named.is_file() and "/" not in text:
        path = named
    if path.is_file():
        facts = read_mapping(path)
        source = str(facts.pop("source", path)) if path.suffix == ".toml" else str(path)
        name = path.parent.name if path.name == "config.json" else path.stem
        read = model_from_description if "layers" in facts else model_from_config
        return read(facts, name, source, **precisions)
    if path.suffix in (".json", ".toml") or "/" in text:
        raise InputError(f"no model file at '{text}'")
    raise InputError(f"unknown model '{text}'; {nearest(text, list_models())}")


def read_mapping(path: Path) -> dict[str, Any]:
    """A JSON object or TOML table from a file.

    Raises:
        InputError: naming the file, where it is unreadable, malformed or not a table.
    """
    try:
        text = path.read_text(encoding="utf-8")
        value = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read '{path}': {error}") from error
    if not isinstance(value, dict):
        raise InputError(f"'{path}' must hold an object of named fields, got {type(value).__name__}")
    return value
