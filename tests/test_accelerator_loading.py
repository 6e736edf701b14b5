"""Accelerator files: the catalogue is complete and sourced; bad input is named."""

import tomllib
from pathlib import Path

import pytest

from jaxecon._errors import InputError
from jaxecon.specs._accelerator_toml import list_accelerators, load_accelerator
from jaxecon.specs._catalogue import configs_dir

NAMES = list_accelerators()


def _text(name: str) -> str:
    return (configs_dir() / "accelerators" / f"{name}.toml").read_text(encoding="utf-8")


def test_catalogue_size() -> None:
    assert len(NAMES) >= 28


@pytest.mark.parametrize("name", NAMES)
def test_catalogue_entry_loads_with_sources(name: str) -> None:
    data = tomllib.loads(_text(name))
    assert data["name"] == name
    assert f"--accelerator {name} " in _text(name).splitlines()[0]
    numbers = {
        key
        for table, entries in data.items()
        if isinstance(entries, dict) and table != "sources"
        for key, value in entries.items()
        if not isinstance(value, str)
    }
    assert numbers == set(data["sources"])
    accelerator = load_accelerator(name, price_per_hour=3.6)
    assert accelerator.name == name
    assert float(accelerator.price) == pytest.approx(0.001, rel=1e-12)
    assert all(text for _, text in accelerator.sources)
    if "price" in data:
        price = load_accelerator(name).price_per_hour
        assert float(price) == pytest.approx(data["price"]["rental_usd_per_hour"], rel=1e-12)
    else:
        with pytest.raises(InputError, match="no rental price on record; give price_per_hour"):
            load_accelerator(name)


def test_name_in_any_case() -> None:
    assert load_accelerator("H100-SXM").name == "h100-sxm"


def test_known_values() -> None:
    b200, b300 = load_accelerator("b200-sxm"), load_accelerator("b300-sxm")
    assert float(b200.hbm_bandwidth) == float(b300.hbm_bandwidth) == 8.0e12
    assert b300.peak.bits4 is not None and float(b300.peak.bits4) == 1.35e16
    for name in ("gb200-nvl72", "gb300-nvl72"):
        assert float(load_accelerator(name).network.domain_size) == 72
    h100 = load_accelerator("h100-sxm")
    assert float(h100.peak.bits16) == 9.89e14
    assert float(h100.hbm_size) == 80 * 2**30
    assert float(h100.network.scale_up_bandwidth) == 4.5e11
    tpu = load_accelerator("tpu-v5e")
    assert tpu.network.kind == "torus" and float(tpu.network.domain_size) == 256
    assert load_accelerator("a100-sxm-80gb").peak.bits4 is None


def test_links_allow_engines_what_the_hardware_has() -> None:
    allowed = {n: load_accelerator(n, price_per_hour=1.0).network for n in list_accelerators()}
    switched = {n for n, net in allowed.items() if "in_switch" in net.engine_algorithms}
    assert {"h100-sxm", "h200-sxm", "b200-sxm", "gb200-nvl72"} <= switched
    assert not switched & {"a100-sxm-80gb", "mi300x", "h100-nvl", "l40s"}
    assert all(not net.engine_algorithms for n, net in allowed.items() if "pcie" in n or n.startswith("tpu"))
    for name, net in allowed.items():
        assert net.algorithms == ("library",)
        said = dict(load_accelerator(name, price_per_hour=1.0).sources)
        assert bool(net.engine_algorithms) == ("network.engine_algorithms" in said)
        if net.engine_algorithms:
            assert {"one_shot", "two_shot", "pairwise"} <= set(net.engine_algorithms)


BANDWIDTH = "hbm_bandwidth_bytes_per_s = 3.35e12"
BAD = [
    (BANDWIDTH, f"hbm_bandwidth_bytes_per_s = {value}", "memory.hbm_bandwidth_bytes_per_s")
    for value in ("3350", "3.35", '"3.35 TB/s"', "-3.35e12", "0", "nan", "inf", "true", "[1.0]")
] + [
    (BANDWIDTH, "", "memory.hbm_bandwidth_bytes_per_s"),
    (BANDWIDTH, "hbm_bandwith_bytes_per_s = 3.35e12", "did you mean 'hbm_bandwidth_bytes_per_s'"),
    ("hbm_size_bytes = 85_899_345_920", "hbm_size_bytes = 80", "memory.hbm_size_bytes"),
    ("hbm_size_bytes = 85_899_345_920", f"hbm_size_bytes = 1{'0' * 400}", "memory.hbm_size_bytes"),
    ("bits16_flop_per_s = 9.89e14", "bits16_flop_per_s = 989", "peak.bits16_flop_per_s"),
    ("bits8_flop_per_s = 1.979e15", "bits8_flop_per_s = false", "peak.bits8_flop_per_s"),
    ("[peak]", "[peek]", "did you mean 'peak'"),
    ('kind = "nccl"', 'kind = "ring"', "network.kind"),
    ('kind = "nccl"', "", "network.kind"),
    ("domain_size = 8", "domain_size = 8.5", "network.domain_size"),
    ("domain_size = 8", "domain_size = 0", "network.domain_size"),
    ('["one_shot", ', '["one_shoot", ', "did you mean 'one_shot'"),
    ('["one_shot", ', '[1, "one_shot", ', "network.engine_algorithms"),
    ('engine_algorithms = "', 'engine_algorithm = "', "did you mean 'engine_algorithms'"),
    ("_up_bandwidth_bytes_per_s = 4.5e11", "_up_bandwidth_bytes_per_s = 450", "scale_up_bandwidth"),
    ("_out_bandwidth_bytes_per_s = 5.0e10", "_out_bandwidth_bytes_per_s = 50", "scale_out_bandw"),
    ("rental_usd_per_hour = 1.3", "rental_usd_per_hour = -1.3", "price.rental_usd_per_hour"),
    ("rental_usd_per_hour = 1.3", 'rental_usd_per_hour = "$1.3"', "price.rental_usd_per_hour"),
    ('date = "2026-04"', 'date = "April"', "price.date"),
    ('date = "2026-04"', "", "price.date"),
    ("rated_w = 700", "rated_w = 0.7", "power.rated_w"),
    ("arithmetic = 0.7", "arithmetic = 70", "efficiency.arithmetic"),
    ("memory = 0.75", "memory = 1.75", "efficiency.memory"),
    ("latency_s = 4e-6", "latency_s = 4", "efficiency.kernel_launch_latency_s"),
    ('name = "h100-sxm"', "name = 3", "'name'"),
    ('rated_w = "', 'rated_watt = "', "did you mean 'rated_w'"),
    ('kernel_launch_latency_s = "Erdil 2025"', "", "sources.kernel_launch_latency_s"),
]


@pytest.mark.parametrize(("old", "new", "named"), BAD)
def test_bad_file_is_named(tmp_path: Path, old: str, new: str, named: str) -> None:
    text = _text("h100-sxm")
    assert old in text
    path = tmp_path / "mine.toml"
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(InputError) as error:
        load_accelerator(path)
    assert named in str(error.value)
    assert "mine.toml" in str(error.value)


@pytest.mark.parametrize("value", ["3350", "3.35"])
def test_implausible_magnitude_says_wrong_unit(tmp_path: Path, value: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(_text("h100-sxm").replace("3.35e12", value, 1), encoding="utf-8")
    with pytest.raises(InputError, match="wrong unit"):
        load_accelerator(str(path))


@pytest.mark.parametrize("content", [b"[peak\n", b'name = "x', b"\xff\xfe\x00", b"a = " + b"[" * 5000])
def test_malformed_file_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.toml"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"broken\.toml"):
        load_accelerator(path)


def test_bad_names_and_arguments(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="did you mean 'h100-sxm'"):
        load_accelerator("h100-smx")
    with pytest.raises(InputError, match="absent.toml"):
        load_accelerator(tmp_path / "absent.toml")
    with pytest.raises(InputError, match="cannot read"):
        load_accelerator(str(tmp_path))


@pytest.mark.parametrize("price", [0, -1.0, float("nan"), float("inf"), True, "2", [2.0]])
def test_bad_price(price: object) -> None:
    with pytest.raises(InputError, match="price_per_hour"):
        load_accelerator("h100-sxm", price_per_hour=price)
