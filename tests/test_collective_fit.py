"""Constants of collectives from calls, by the cost model's own formulas."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxecon._errors import InputError
from jaxecon.calibration import fit_collectives, read_collectives
from jaxecon.calibration._collectives import Call, _arrays, collective_seconds
from jaxecon.specs import load_accelerator

TRUTH = np.asarray([np.log(1.4), np.log(4e-6), np.log(1.5e-6), 0.5, 1.2])


def test_known_constants_are_found_again():
    calls = [
        Call(2, "h100-sxm", operation, "made", own, ranks, 2.0**power, 1.0)
        for operation in ("all_reduce", "all_gather", "alltoall")
        for own in (False, True)
        for ranks in (2.0, 8.0)
        for power in range(10, 30, 3)
    ]
    network = load_accelerator("h100-sxm").network
    seconds = np.asarray(collective_seconds(jnp.asarray(TRUTH), network, _arrays(calls)))
    made = [c._replace(seconds=float(s)) for c, s in zip(calls, seconds, strict=True)]
    fit = fit_collectives(made)["h100-sxm"]
    assert fit.errors()[0] < 0.01
    assert fit.constants["library_latency"][0] == pytest.approx(1.4, rel=0.02)
    total = sum(fit.constants[k][0] for k in ("direct_latency", "scale_up_hop"))
    assert total == pytest.approx(5.5e-6, rel=0.05)
    for value, low, high in fit.constants.values():
        assert low < value < high


def test_only_calls_inside_a_domain_are_read(tmp_path):
    head = "op,impl,gpu,n_ranks,n_nodes,message_bytes,size_convention,latency_us\n"
    path = tmp_path / "calls.csv"
    path.write_text(
        head
        + "all_reduce,NCCL,H100-SXM-80GB,8,1.0,1024,total,15.6\n"
        + "all_reduce,NCCL,H100-SXM-80GB,16,2.0,1024,total,40\n"
        + "ep_dispatch,DeepEP,H100-SXM-80GB,8,1.0,1024,per-rank,12\n"
        + "all_reduce,NCCL,unknown,8,1.0,1024,total,15.6\n"
    )
    (call,) = read_collectives(path)
    assert call.machine == "h100-sxm" and call.seconds == pytest.approx(15.6e-6)
    path.write_text(head)
    with pytest.raises(InputError, match="no collective inside a domain"):
        read_collectives(path)
