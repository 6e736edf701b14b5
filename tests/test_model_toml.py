"""Models described by hand, and every kind of mistake in them named."""

import pytest

import jaxecon as je

GOOD = """
width = 4096
vocabulary = 32000
other_parameters = 4096
[precision]
kv_bits = 8
[[layers]]
count = 32
norm_parameters = 8192
[layers.mixer]
kind = "grouped_query"
heads = 32
kv_heads = 32
head_dim = 128
value_head_dim = 128
[layers.feed_forward]
kind = "dense"
hidden = 11008
"""


def _load(tmp_path, text, **options):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return je.load_model(path, **options)


def test_equals_the_catalogue(tmp_path):
    model = _load(tmp_path, GOOD)
    assert int(model.total_parameters) == 6_738_415_616 and model.name == "mine"
    assert float(model.precision.kv) == 1.0
    assert float(_load(tmp_path, GOOD, kv_bits=16).precision.kv) == 2.0


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("width = 4096", "", "width"),
        ("width = 4096", "widht = 4096", "width"),
        ("width = 4096", "width = 0", "width"),
        ("width = 4096", "width = true", "width"),
        ("width = 4096", 'width = "4096"', "width"),
        ("vocabulary = 32000", "", "vocabulary"),
        ("count = 32", "", "count"),
        ("count = 32", "count = -1", "count"),
        ("kv_heads = 32", "", "kv_heads"),
        ("heads = 32\nkv", "heads = 32\nhaeds = 3\nkv", "haeds"),
        ('"grouped_query"', '"groupedquery"', "grouped_query"),
        ('"dense"', '"dens"', "dense"),
        ("hidden = 11008", "hidden = nan", "hidden"),
        ("hidden = 11008", "hidden = 11008\ngated = 3", "gated"),
        ("kv_bits = 8", "kv_bits = 0", "kv_bits"),
        ("kv_bits = 8", "kv_bit = 8", "kv_bits"),
        ("[[layers]]", "[[layers", "mine.toml"),
    ],
)
def test_bad_description(tmp_path, old, new, named):
    assert old in GOOD
    with pytest.raises(je.InputError, match=named):
        _load(tmp_path, GOOD.replace(old, new, 1))
