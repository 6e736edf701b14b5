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
    "deepseek-v3": (671_026_419_200, 70_272),
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


def test_windowed_layers_keep_only_their_window():
    sparse = je.load_model("gpt-oss-120b", kv_bits=8)
    assert float(sparse.kv_cache_bytes(65_935)) / 2**30 == pytest.approx(1.134, abs=5e-4)
    gemma = je.load_model("gemma-3-27b-it")
    everything = 62 * 2 * 16 * 128 * 2 * 131_072
    assert float(gemma.kv_cache_bytes(131_072)) / everything == pytest.approx(0.168, abs=5e-4)


def test_no_experts_means_dense(tmp_path):
    for value in (None, 0):
        config = GOOD | {"model_type": "qwen3_moe", "num_experts": value}
        (tmp_path / "config.json").write_text(json.dumps(config))
        assert len(je.load_model(tmp_path).groups) == 1


def test_unknown_activation_is_no_reason_to_refuse(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(GOOD | {"hidden_act": "newfangled"}))
    assert float(je.load_model(tmp_path).total_parameters) > 0


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


PRECISIONS = [
    ({"quant_method": "fp8", "weight_block_size": [128, 128]}, (1.0, 1.0, 8, 128)),
    ({"quant_method": "fp8"}, (1.0, 1.0, 8, None)),
    ({"quant_method": "mxfp4"}, (2.0, 4.25 / 8, 16, None)),
    ({"quant_method": "awq", "bits": 4, "group_size": 128}, (4.125 / 8, 4.125 / 8, 16, None)),
    ({"quant_method": "gptq", "bits": 4, "group_size": -1}, (0.5, 0.5, 16, None)),
    ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, (4.5 / 8, 4.5 / 8, 4, None)),
    (
        {
            "quant_method": "compressed-tensors",
            "config_groups": {"group_0": {"weights": {"num_bits": 4, "group_size": 32}}},
        },
        (4.5 / 8, 4.5 / 8, 16, None),
    ),
]


@pytest.mark.parametrize(("block", "expected"), PRECISIONS)
def test_quantization_blocks_state_the_precision(tmp_path, block, expected):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(GOOD | {"quantization_config": block}))
    found = je.load_model(path).precision
    assert (float(found.weight), float(found.expert), found.compute_bits, found.block) == expected
    assert float(found.embedding) == 2.0 and float(found.kv) == 2.0
    wide = je.load_model(path, weight_bits=16).precision
    assert (float(wide.weight), wide.compute_bits, wide.block) == (2.0, 16, None)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"model_type": "qwen3_moe", "num_experts": 8, "mlp_only_layers": [1]}, "mlp_only_layers"),
        ({"model_type": "qwen3_moe", "num_experts": 8, "decoder_sparse_step": 2}, "decoder_sparse_step"),
        ({"model_type": "mixtral", "num_local_experts": 2, "num_experts_per_tok": 4}, "exceeds"),
        ({"model_type": "mixtral", "num_local_experts": 2}, "num_experts_per_tok"),
        ({"quantization_config": 4}, "quantization_config"),
        ({"quantization_config": {"quant_method": "awq"}}, "bits"),
        ({"quantization_config": {"quant_method": "modelopt"}}, "quant_algo"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings"),
    ],
)
def test_bad_combinations(tmp_path, change, named):
    config = GOOD | {"moe_intermediate_size": 32} | change
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(je.InputError, match=named):
        je.load_model(tmp_path)


@pytest.mark.parametrize("name", ["qwen3-4b", "deepseek-v3", "gpt-oss-20b"])
def test_a_parameter_is_in_a_matrix_or_in_a_vector(name):
    model = je.load_model(name)
    for group in model.groups:
        halves = [half for half in (group.mixer, group.feed_forward) if half is not None]
        matrices = sum(float(half.matrix_parameters(model.width)) for half in halves)
        one = float(group.total_parameters(model.width)) / float(group.count)
        assert float(group.vector_parameters) == one - matrices > 0
