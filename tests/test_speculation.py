"""Drafting: heads, acceptance by position, measured lengths, the best draft."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxecon as je


def tokens(speculation, drafted):
    return float(speculation.tokens_per_step(jnp.asarray(float(drafted))))


def test_one_acceptance_for_each_position():
    draft = je.load_model("llama-3.2-1b")
    alphas = [0.9, 0.7, 0.5]
    speculation = je.Speculation(draft, jnp.asarray(alphas), 3)
    expected = [1.0, 1.9, 1.9 + 0.63, 1.9 + 0.63 + 0.315]
    assert [tokens(speculation, k) for k in range(4)] == pytest.approx(expected)
    alike, single = je.Speculation(draft, jnp.full(8, 0.6)), je.Speculation(draft, 0.6)
    for k in range(9):
        assert tokens(alike, k) == pytest.approx(tokens(single, k), rel=1e-12)


def test_between_whole_drafts_the_curve_is_smooth_and_monotone():
    curve = je.Speculation(je.load_model("llama-3.2-1b"), jnp.asarray([0.9, 0.6, 0.6, 0.2]), 4)
    at = np.linspace(0.0, 4.0, 401)
    values = np.asarray(curve.tokens_per_step(jnp.asarray(at)))
    assert np.all(np.diff(values) > 0)
    slope = jax.vmap(jax.grad(curve.tokens_per_step))(jnp.asarray(at))
    assert np.max(np.abs(np.diff(np.asarray(slope)))) < 0.02  # no jump at whole numbers


@pytest.mark.parametrize("name", je.list_speculations())
def test_shipped_settings_give_the_measured_lengths(name):
    target = je.load_model("kimi-k2.5" if "eagle" in name else "deepseek-v3")
    speculation = je.load_speculation(name, target)
    lengths = np.asarray(speculation.lengths)
    assert [tokens(speculation, k + 1) for k in range(len(lengths))] == pytest.approx(lengths.tolist())
    assert tokens(speculation, 0) == 1.0 and speculation.max_draft_tokens == len(lengths)


def test_deepseek_prediction_module_has_the_published_size():
    """14 B parameters with its copies of embedding and head (DeepSeek-V3 README), 11.5 B without."""
    head = je.prediction_head(je.load_model("deepseek-v3"))
    copies = 2 * 129280 * 7168
    assert float(head.total_parameters) / 1e9 == pytest.approx(13.46, abs=0.05)
    ledger = [
        je.Serving(
            je.load_model("deepseek-v3"),
            je.load_accelerator("h200-sxm"),
            je.Workload(100.0),
            speculation=None if not on else je.Speculation(head, 0.8),
        ).ledger(je.Layout(tensor=1.0, data=8.0, expert=8.0, batch=8.0))
        for on in (False, True)
    ]
    stored = float(head.total_parameters) - copies
    experts = 256 * 3 * 7168 * 2048
    least = (stored - experts) + experts / 8  # bytes, at one a weight; embedding and head are borrowed
    assert float(ledger[1].draft) == pytest.approx(least, rel=0.02) and float(ledger[0].draft) == 0.0
    assert float(ledger[1].weights) == float(ledger[0].weights)


def test_eagle_head_is_small_and_legal_beside_wide_expert_parallelism():
    target = je.load_model("kimi-k2.5")
    head = je.eagle_head(target)
    assert 0.2e9 < float(head.total_parameters) < 2e9
    speculation = je.load_speculation("kimi-k2.5-eagle3-thinking", target)
    scenario = je.Serving(
        target, je.load_accelerator("b200-sxm"), je.Workload(4096.0), speculation=speculation
    )
    best = je.certified_optimum(scenario, 2.0, max_accelerators=64)
    plain = je.Serving(target, scenario.accelerator, scenario.workload)
    assert best.speed > 1.2 * je.certified_optimum(plain, 2.0, max_accelerators=64).speed
    assert 0 < float(best.layout.draft_tokens) < 8 and float(best.layout.data) > 1


def test_longer_drafts_pay_only_while_they_are_accepted():
    target, machine = je.load_model("llama-3.1-70b"), je.load_accelerator("h100-sxm")
    best = []
    for alpha in (0.2, 0.6, 0.95):
        speculation = je.Speculation(je.load_model("llama-3.2-1b"), alpha, 8)
        scenario = je.Serving(target, machine, je.Workload(4096.0), speculation=speculation)
        found = je.certified_optimum(scenario, 1.5, max_accelerators=16)
        best.append(float(found.layout.draft_tokens))
    assert best[0] < best[1] < best[2]


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda m: je.Speculation(m, 1.2), "acceptance"),
        (lambda m: je.Speculation(m, jnp.asarray([0.5, -0.1]), 2), "acceptance"),
        (lambda m: je.Speculation(m, jnp.asarray([0.5, 0.4]), 3), "2 positions"),
        (lambda m: je.load_speculation("deepseek-r1-mtp-thinkng", m), "deepseek-r1-mtp-thinking"),
    ],
)
def test_absurd_settings_are_refused(build, says):
    with pytest.raises(je.InputError, match=says):
        build(je.load_model("llama-3.2-1b"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "method = 3",
        'method = "mtp"\nacceptance_lengths = [5.0]',
        'method = "x"\nacceptance_lengths = [1.5]',
    ],
)
def test_bad_files_are_refused(text, tmp_path):
    path = tmp_path / "setting.toml"
    path.write_text(text)
    with pytest.raises(je.InputError, match="setting.toml"):
        je.load_speculation(path, je.load_model("deepseek-v3"))
