"""Programs kept on disk: used where nothing differs, and never elsewhere."""

import hashlib
import pickle
import shutil

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxecon import Layout, Serving, Workload, _programs, load_accelerator, load_model
from jaxecon._programs import described, program, staged, use_library_programs, use_quick_programs
from jaxecon.optimum import Space, prepare_space
from jaxecon.scenarios import inspect_layouts

traces = []


class Pair(eqx.Module):
    x: jax.Array
    how: str = eqx.field(static=True, default="add")
    name: object = eqx.field(static=True, default=None)


@program
def combined(pair, y):
    traces.append(pair.how)
    total = pair.x + y if pair.how == "add" else pair.x * y
    return {"total": total, "how": pair.how, "pair": Pair(2.0 * pair.x, pair.how)}


PAIR, Y = Pair(jnp.arange(3.0)), jnp.ones(3)


@pytest.fixture
def folder(tmp_path):
    traces.clear()
    use_quick_programs(tmp_path)
    yield tmp_path
    use_library_programs()


def another_process(folder):
    use_library_programs()
    use_quick_programs(folder)


def serving(model="llama-3.1-8b", accelerator="h100-sxm", **options):
    return Serving(load_model(model), load_accelerator(accelerator), Workload(4096.0), **options)


def test_another_process_does_not_trace(folder):
    first = combined(PAIR, Y)
    assert traces == ["add"] and len(list(folder.iterdir())) == 1
    another_process(folder)
    second = combined(PAIR, 2.0 * Y)
    assert traces == ["add"]
    assert second["how"] == "add" and type(second["pair"]) is Pair and second["pair"].how == "add"
    np.testing.assert_array_equal(first["total"], [1.0, 2.0, 3.0])
    np.testing.assert_array_equal(second["total"], [2.0, 3.0, 4.0])
    np.testing.assert_array_equal(second["pair"].x, [0.0, 2.0, 4.0])


@pytest.mark.parametrize(
    "pair, y",
    [
        (Pair(PAIR.x, "times"), Y),
        (PAIR, jnp.ones(())),
        (PAIR, jnp.ones(3, jnp.float32).astype(jnp.float64).reshape(1, 3)),
        (PAIR, 1.0),
        (PAIR, 2.0),
    ],
)
def test_other_structures_do_not_share(folder, pair, y):
    combined(PAIR, Y)
    another_process(folder)
    expected = pair.x + y if pair.how == "add" else pair.x * y
    np.testing.assert_array_equal(combined(pair, y)["total"], expected)
    assert len(traces) == len(list(folder.iterdir())) == 2


def test_texts_tell_scenarios_apart():
    same = described(serving()), described(serving("llama-3.1-70b", "a100-sxm-80gb"))
    assert same[0] == same[1]  # numbers and names only
    others = [serving("deepseek-v3"), serving("gemma-2-9b"), serving(chunk_tokens=512.0)]
    others += [eqx.tree_at(lambda s: s.workload, serving(), Workload(4096.0, demand=1.0))]
    others += [eqx.tree_at(lambda s: s.reserve, serving(), jnp.ones(2))]
    others += [eqx.tree_at(lambda s: s.reserve, serving(), jnp.float32(0.1))]
    others += [(serving(),), [serving()], {"a": serving()}, serving(accelerator="tpu-v5p")]
    texts = [same[0], *map(described, others)]
    assert len(set(texts)) == len(texts)
    for static in (object(), lambda: 0, {1}):
        with pytest.raises(TypeError, match="no text describes"):
            described(Pair(jnp.ones(3), name=static))
    with pytest.raises(TypeError, match="no text describes"):
        described(np.ones(3), static=True)


def test_what_no_text_describes_is_not_saved(folder):
    pair = Pair(PAIR.x, name=len)
    for _ in range(2):
        np.testing.assert_array_equal(combined(pair, Y)["total"], [1.0, 2.0, 3.0])
    assert len(traces) == 1 and not list(folder.iterdir())


def test_other_sources_or_versions_are_compiled_anew(folder, monkeypatch):
    combined(PAIR, Y)
    another_process(folder)
    monkeypatch.setattr(_programs, "_origin", lambda: "of another version")
    combined(PAIR, Y)
    another_process(folder)
    combined(PAIR, Y)
    assert len(traces) == 2 and len(list(folder.iterdir())) == 1


def test_origin_follows_the_sources(tmp_path, monkeypatch):
    before = _programs._origin.__wrapped__()
    copy = tmp_path / "jaxecon"
    shutil.copytree(_programs.Path(_programs.__file__).parent, copy)
    monkeypatch.setattr(_programs, "__file__", str(copy / "_programs.py"))
    assert _programs._origin.__wrapped__() == before
    with (copy / "cost" / "_step.py").open("a") as file:
        file.write("\n")
    assert _programs._origin.__wrapped__() != before
    monkeypatch.undo()
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")
    assert _programs._origin.__wrapped__() != before


def sealed(content):
    return hashlib.sha256(content).digest() + content


@pytest.mark.parametrize(
    "damage",
    [
        lambda good, other: b"",
        lambda good, other: good[: len(good) // 2],
        lambda good, other: good[:-1] + bytes([good[-1] ^ 1]),
        lambda good, other: sealed(b"no pickle"),
        lambda good, other: sealed(pickle.dumps((pickle.loads(good[32:])[0], b"no program", {}))),
        # Machine code of another program, found out only by running it.
        lambda good, other: sealed(pickle.dumps((pickle.loads(good[32:])[0], *pickle.loads(other[32:])[1:]))),
    ],
)
def test_damaged_files_are_replaced(folder, damage):
    combined(PAIR, Y)
    (path,) = folder.iterdir()
    good = path.read_bytes()
    combined(PAIR, jnp.ones(()))
    (other,) = set(folder.iterdir()) - {path}
    path.write_bytes(damage(good, other.read_bytes()))
    traces.clear()
    for _ in range(2):
        another_process(folder)
        np.testing.assert_array_equal(combined(PAIR, Y)["total"], [1.0, 2.0, 3.0])
        assert traces == ["add"]
    assert {p.suffix for p in folder.iterdir()} == {".program"}


def doubled(pair, y):
    traces.append("doubled")
    return Pair(2.0 * pair.x + y, pair.how)


def joined(pair, y, found):
    traces.append(found.how)
    return pair.x + found.x, found.how


both = staged(doubled, joined)


def test_stages_are_programs_of_their_own(folder):
    for _ in range(2):
        total, how = both(PAIR, Y)
        np.testing.assert_array_equal(total, [1.0, 4.0, 7.0])
        assert how == "add" and traces == ["doubled", "add"] and len(list(folder.iterdir())) == 2
        another_process(folder)
    for path in folder.iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    np.testing.assert_array_equal(both(PAIR, Y)[0], [1.0, 4.0, 7.0])
    assert traces == 2 * ["doubled", "add"]


def test_a_library_compiles_stages_as_one():
    traces.clear()
    for y in (Y, 2.0 * Y):
        np.testing.assert_array_equal(both(PAIR, y)[0], 3.0 * PAIR.x + y)
    assert traces == ["doubled", "add"] and both._cached._cache_size() == 1


def test_the_search_finds_its_program_prepared(folder):
    scenario = serving()
    prepare_space(scenario, 16)
    assert len(_programs._Quick.programs.known) == 1
    assert Space(scenario, 16).size > 0
    assert len(_programs._Quick.programs.known) == 1


def test_what_is_prepared_is_not_traced_again(folder):
    shapes = Pair(jax.ShapeDtypeStruct((3,), jnp.float64)), jax.ShapeDtypeStruct((3,), jnp.float64)
    both.prepare(*shapes)
    combined.prepare(PAIR, 3.0 * Y)
    assert traces == ["doubled", "add", "add"]
    np.testing.assert_array_equal(both(PAIR, Y)[0], [1.0, 4.0, 7.0])
    np.testing.assert_array_equal(combined(PAIR, Y)["total"], [1.0, 2.0, 3.0])
    assert len(traces) == 3
    combined.prepare(PAIR, "no array")  # what fails is reported by the call
    with pytest.raises(TypeError):
        combined(PAIR, "no array")
    use_library_programs()
    both.prepare(*shapes)
    assert len(traces) == 5


@program
def solved(a, b):
    return jnp.linalg.solve(a, b)


def test_calls_of_other_libraries_are_not_saved(folder):
    np.testing.assert_array_equal(solved(2.0 * jnp.eye(3), Y), 0.5 * Y)
    assert not list(folder.iterdir())


def test_without_a_folder_or_where_it_is_gone(folder):
    for place in (None, folder / "gone"):
        use_quick_programs(place)
        np.testing.assert_array_equal(combined(PAIR, Y)["total"], [1.0, 2.0, 3.0])
    assert not list(folder.iterdir())


def test_options_unknown_to_xla_are_left_out(folder, monkeypatch):
    monkeypatch.setitem(_programs.QUICK, "xla_of_another_release", 1)
    np.testing.assert_array_equal(combined(PAIR, Y)["total"], [1.0, 2.0, 3.0])


def test_transformed_calls_are_traced_as_usual(folder):
    slope = jax.grad(lambda y: combined(PAIR, y)["total"].sum())(Y)
    np.testing.assert_array_equal(slope, jnp.ones(3))
    assert not list(folder.iterdir())


def test_quick_programs_give_the_same_figures(folder):
    question = serving("deepseek-v3"), Layout(tensor=8.0, batch=64.0, expert=8.0)
    quick = inspect_layouts(*question)
    use_library_programs()
    for a, b in zip(jax.tree.leaves(quick), jax.tree.leaves(inspect_layouts(*question)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13)
