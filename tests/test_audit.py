"""The audit passes true answers and catches falsified ones."""

import dataclasses

import equinox as eqx
import jax.numpy as jnp
import pytest

import jaxecon as je
from jaxecon.optimum import audit


@pytest.fixture(scope="module")
def answered():
    model, accelerator = je.load_model("llama-3.1-70b"), je.load_accelerator("h100-sxm")
    scenario = je.Serving(model, accelerator, je.Workload(4096))
    return scenario, je.certified_optimum(scenario, 1.5)


@pytest.mark.parametrize("name", ["llama-3.1-8b", "mixtral-8x7b-v0.1", "gpt-oss-120b", "deepseek-v3"])
def test_true_answers_pass(name):
    scenario = je.Serving(je.load_model(name), je.load_accelerator("h200-sxm"), je.Workload(2000))
    audit(scenario, je.certified_optimum(scenario, 20.0))


@pytest.mark.parametrize("kind", [je.Erdil2025, je.Toy])
def test_true_answers_of_the_paper_pass(kind):
    model, accelerator = je.load_model("llama-3.1-70b"), je.load_accelerator("h100-sxm")
    scenario = kind(model, accelerator, je.Workload(1000))
    audit(scenario, je.certified_optimum(scenario, 2.0, max_accelerators=16))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"speed": 1e6}, "roofline"),
        ({"speed": 78.0}, "not that of the layout"),
        ({"cost": 0.01}, "cost and speed"),
        ({"batch": 5000.0}, "memory"),
    ],
)
def test_false_answers_are_caught(answered, change, says):
    scenario, found = answered
    if "batch" in change:
        layout = eqx.tree_at(lambda x: x.batch, found.layout, jnp.asarray(change["batch"]))
        change = {"layout": layout}
    with pytest.raises(RuntimeError, match=says):
        audit(scenario, dataclasses.replace(found, **change))
