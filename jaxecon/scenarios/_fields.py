"""The paper's tables of models and accelerators, as dictionaries, to specs."""

import math
from collections.abc import Mapping
from typing import Any

from .._errors import InputError, nearest
from ..cost._erdil_model import ErdilModel
from ..specs import Accelerator, Network, PeakRates

_MODEL_KEYS = (
    "d_model d_ff ff_matrix_count layers n_experts n_active_experts num_query_heads group_size "
    "d_head weight_precision_bytes activation_precision_bytes vocab_size"
).split()
_MODEL_OPTIONAL = (
    "name parallel_attention total_params total_active_params kv_bytes_per_token mla "
    "mla_kv_compression_dim mla_query_compression_dim"
).split()
_ACCELERATOR_KEYS = (
    "flop_per_second hbm_bandwidth_Bps hbm_size_bytes intranode_allreduce_bandwidth_Bps "
    "internode_allreduce_bandwidth_Bps node_size price_dollars_per_hour "
    "kernel_launch_latency_seconds"
).split()
_ACCELERATOR_OPTIONAL = "name collective arithmetic_utilization_cap memory_bwd_utilization_cap".split()


def _check(fields: Mapping[str, Any], what: str, needed: list[str], optional: list[str]) -> None:
    for key in needed:
        if key not in fields:
            raise InputError(f"{what} has no '{key}'; it needs {', '.join(needed)}")
    for key in fields:
        if key not in needed and key not in optional:
            hint = nearest(key, [*needed, *optional])
            raise InputError(f"{what} has an unknown key '{key}'; {hint}")


def _number(fields: Mapping[str, Any], key: str, what: str, least: float = 0.0) -> float:
    value = fields[key]
    try:
        if isinstance(value, bool):
            raise TypeError
        number = float(value)
    except (TypeError, ValueError):
        raise InputError(f"{what}: '{key}' must be a number, got {value!r}") from None
    if math.isnan(number) or number <= least and not (number == least == 0 and "price" in key):
        raise InputError(f"{what}: '{key}' must be above {least:g}, got {value!r}")
    return number


def model_from_fields(fields: Mapping[str, Any]) -> ErdilModel:
    """An `ErdilModel` from the keys of the paper's model table.

    Raises:
        InputError: for a missing, unknown or absurd entry.
    """
    what = f"model '{fields.get('name', '?')}'"
    _check(fields, what, _MODEL_KEYS, _MODEL_OPTIONAL)
    numbers = {k: _number(fields, k, what) for k in _MODEL_KEYS if k != "ff_matrix_count"}
    latent = bool(fields.get("mla"))
    m0, m1 = fields["ff_matrix_count"]
    weight = numbers.pop("weight_precision_bytes")
    activation = numbers.pop("activation_precision_bytes")
    return ErdilModel(
        **numbers,
        weight_bytes=weight,
        activation_bytes=activation,
        kv_rank=fields["mla_kv_compression_dim"] if latent else None,
        query_rank=fields["mla_query_compression_dim"] if latent else None,
        ff_matrices=(int(m0), int(m1)),
        compute_bits=round(8 * weight),
        parallel_attention=bool(fields.get("parallel_attention", False)),
        name=str(fields.get("name", "model")),
    )


def accelerator_from_fields(fields: Mapping[str, Any], compute_bits: int) -> Accelerator:
    """An `Accelerator` from the keys of the paper's accelerator table.

    All-reduce bandwidths there are half the one-way link bandwidths here.

    Raises:
        InputError: for a missing, unknown or absurd entry, or no peak at `compute_bits`.
    """
    what = f"accelerator '{fields.get('name', '?')}'"
    _check(fields, what, _ACCELERATOR_KEYS, _ACCELERATOR_OPTIONAL)
    peaks = fields["flop_per_second"]
    if str(compute_bits) not in peaks:
        raise InputError(
            f"{what}: 'flop_per_second' has no entry for {compute_bits}-bit weights; "
            f"it has {', '.join(sorted(peaks, key=int))}"
        )
    numbers = {k: _number(fields, k, what) for k in _ACCELERATOR_KEYS if k != "flop_per_second"}
    kind = str(fields.get("collective", "nccl"))
    if kind not in ("nccl", "torus"):
        raise InputError(f"{what}: 'collective' must be 'nccl' or 'torus', got {kind!r}")
    return Accelerator(
        peak=PeakRates(
            max(peaks.values(), key=float) if "16" not in peaks else peaks["16"],
            peaks.get("8"),
            peaks.get("4"),
        ),
        hbm_bandwidth=numbers["hbm_bandwidth_Bps"],
        hbm_size=numbers["hbm_size_bytes"],
        network=Network(
            scale_up_bandwidth=2.0 * numbers["intranode_allreduce_bandwidth_Bps"],
            scale_out_bandwidth=2.0 * numbers["internode_allreduce_bandwidth_Bps"],
            domain_size=numbers["node_size"],
            kind=kind,
        ),
        price=numbers["price_dollars_per_hour"] / 3600.0,
        kernel_launch_latency=numbers["kernel_launch_latency_seconds"],
        arithmetic_efficiency=fields.get("arithmetic_utilization_cap", 1.0),
        memory_efficiency=fields.get("memory_bwd_utilization_cap", 1.0),
        name=str(fields.get("name", "accelerator")),
    )
