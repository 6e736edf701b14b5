"""Exact counts of real models, and bad configs named."""

import csv
import json

import pytest

import jaxecon as je

COUNTS = {
    "llama-3.1-405b": (405_853_388_800, 516_096),
    "llama-3.1-70b": (70_553_706_496, 327_680),
    "llama-2-7b": (6_738_415_616, 524_288),
    "llama-2-70b": (68_976_648_192, 327_680),
    "qwen3-4b": (4_022_468_096, 147_456),
    "mixtral-8x7b-v0.1": (46_702_792_704, 131_072),
}
GOOD = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
}


@pytest.mark.parametrize("name", list(COUNTS))
def test_catalogue_counts(name):
    model = je.load_model(name)
    assert (int(model.total_parameters), int(model.kv_cache_bytes(1))) == COUNTS[name]


def test_catalogue_loads_whole():
    assert len(je.list_models()) >= 40
    for name in je.list_models():
        assert float(je.load_model(name).total_parameters) > 0


def test_counts_equal_the_table(reference):
    configs = reference.parent / "data" / "model_configs"
    exact = 0
    with open(reference / "parameter_counts.csv") as file:
        for row in csv.DictReader(file):
            model = je.load_model(configs / row["config"], kv_bits=16)
            assert int(model.total_parameters) == int(row["total_parameters"]), row["config"]
            assert int(model.active_parameters) == int(row["active_parameters"]), row["config"]
            for context in (1024, 32768, 131072):
                if row[f"kv_bytes_{context}"]:
                    assert int(model.kv_cache_bytes(context)) == int(row[f"kv_bytes_{context}"])
            exact += 1
    assert exact == 66


BAD = [({k: None}, k) for k in GOOD if k not in ("num_key_value_heads", "model_type")]
BAD += [({k: v}, k) for k in ("hidden_size", "vocab_size") for v in (0, -1, True, "64", 1.5, 1e12)]
BAD += [
    ({"num_key_value_heads": 3}, "num_key_value_heads"),
    ({"model_type": "nonesuch"}, "nonesuch"),
    ({"model_type": None}, "model_type"),
    ({"text_config": 3}, "text_config"),
    ({"hidden_size": 66}, "head_dim"),
    ({"quantization_config": {"quant_method": "odd"}}, "odd"),
]


@pytest.mark.parametrize(("change", "named"), BAD)
def test_bad_config(tmp_path, change, named):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(GOOD | change))
    with pytest.raises(je.InputError, match=named):
        je.load_model(path)


@pytest.mark.parametrize("text", ["", "{", "[1]", "3", '{"a": }'])
def test_malformed_file(tmp_path, text):
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(je.InputError, match="config.json"):
        je.load_model(tmp_path)


@pytest.mark.parametrize("bits", [0, -8, 64])
def test_bad_precision(bits):
    with pytest.raises(je.InputError, match="weight_bits"):
        je.load_model("llama-2-7b", weight_bits=bits)


def test_unknown_name_has_nearest():
    with pytest.raises(je.InputError, match="llama-3.1-70b"):
        je.load_model("lama-3.1-70b")
