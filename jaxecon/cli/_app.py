"""Commands of `jaxecon`. Each turns bad input into one sentence and exit code 2."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from .._errors import InputError
from . import _options as o
from ._cache import cache_compilations

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)


@app.callback()
def _root() -> None:
    """How fast a language model can be served at a price, and on which layout."""


@app.command()
def optimize(
    model: o.ModelName,
    accelerator: o.AcceleratorName,
    budget: Annotated[float, typer.Option(help="US dollars per million output tokens.")],
    context: o.Context = 4096.0,
    output: o.Output = 512.0,
    demand: o.Demand = None,
    weight_bits: o.WeightBits = None,
    kv_bits: o.KvBits = None,
    price_per_hour: o.PricePerHour = None,
    draft: o.Draft = None,
    acceptance: o.Acceptance = 0.7,
    max_draft_tokens: o.MaxDraft = 8,
    reserve: o.Reserve = 0.1,
    engine: o.Engine = None,
    speculation: o.Setting = None,
    prompt: o.Prompt = None,
    hit_rate: o.HitRate = 0.0,
    chunk_tokens: o.Chunk = None,
    overlap: o.Overlap = 0.0,
    expert_imbalance: o.Imbalance = 1.0,
    engine_overhead_s: o.Overhead = None,
    dispatch_bits: o.Dispatch = None,
    purchase: o.Purchase = None,
    life_years: o.Life = 4.0,
    utilisation: o.Utilisation = 0.7,
    power_price: o.PowerPrice = 0.08,
    pue: o.Pue = 1.25,
    grid_intensity: o.Grid = 400.0,
    max_accelerators: o.MaxAccelerators = 1024,
    plot: o.Plot = None,
    as_json: o.Json = False,
    as_csv: o.Csv = False,
) -> None:
    """The fastest legal layout within a budget, certified by exact search."""
    options = _shared(locals())
    _check_picture(plot)
    from ._optimize import answer
    from ._question import question, site_of, working

    with working("searching all legal layouts"):
        scenario = question(model, accelerator, **options)
        result = answer(scenario, model, budget, max_accelerators, site_of(pue, grid_intensity))
    _deliver(result, model, accelerator, plot, as_json, as_csv)


@app.command()
def explain(
    model: o.ModelName,
    accelerator: o.AcceleratorName,
    layout: Annotated[str, typer.Option(help="tensor=8,pipeline=1,data=1,expert=1,batch=32")],
    context: o.Context = 4096.0,
    output: o.Output = 512.0,
    weight_bits: o.WeightBits = None,
    kv_bits: o.KvBits = None,
    price_per_hour: o.PricePerHour = None,
    draft: o.Draft = None,
    acceptance: o.Acceptance = 0.7,
    reserve: o.Reserve = 0.1,
    engine: o.Engine = None,
    speculation: o.Setting = None,
    prompt: o.Prompt = None,
    hit_rate: o.HitRate = 0.0,
    chunk_tokens: o.Chunk = None,
    overlap: o.Overlap = 0.0,
    expert_imbalance: o.Imbalance = 1.0,
    engine_overhead_s: o.Overhead = None,
    dispatch_bits: o.Dispatch = None,
    purchase: o.Purchase = None,
    life_years: o.Life = 4.0,
    utilisation: o.Utilisation = 0.7,
    power_price: o.PowerPrice = 0.08,
    pue: o.Pue = 1.25,
    grid_intensity: o.Grid = 400.0,
    plot: o.Plot = None,
    as_json: o.Json = False,
    as_csv: o.Csv = False,
) -> None:
    """The breakdown of time and the memory ledger of one layout."""
    options = _shared(locals())
    _check_picture(plot)
    from ._explain import explain as explained, layout_of
    from ._question import question, site_of

    scenario, site = question(model, accelerator, **options), site_of(pue, grid_intensity)
    result = explained(scenario, layout_of(layout), model, site)
    _deliver(result, model, accelerator, plot, as_json, as_csv)


@app.command()
def frontier(
    model: o.ModelName,
    accelerator: o.AcceleratorName,
    context: o.Context = 4096.0,
    output: o.Output = 512.0,
    demand: o.Demand = None,
    weight_bits: o.WeightBits = None,
    kv_bits: o.KvBits = None,
    price_per_hour: o.PricePerHour = None,
    draft: o.Draft = None,
    acceptance: o.Acceptance = 0.7,
    max_draft_tokens: o.MaxDraft = 8,
    reserve: o.Reserve = 0.1,
    engine: o.Engine = None,
    speculation: o.Setting = None,
    prompt: o.Prompt = None,
    hit_rate: o.HitRate = 0.0,
    chunk_tokens: o.Chunk = None,
    overlap: o.Overlap = 0.0,
    expert_imbalance: o.Imbalance = 1.0,
    engine_overhead_s: o.Overhead = None,
    dispatch_bits: o.Dispatch = None,
    purchase: o.Purchase = None,
    life_years: o.Life = 4.0,
    utilisation: o.Utilisation = 0.7,
    power_price: o.PowerPrice = 0.08,
    pue: o.Pue = 1.25,
    max_accelerators: o.MaxAccelerators = 1024,
    plot: o.Plot = None,
    as_json: o.Json = False,
    as_csv: o.Csv = False,
) -> None:
    """Every layout that no other beats in both speed and cost; compare several with commas."""
    options = _shared(locals())
    _check_picture(plot)
    from ..optimum import audit, certified_frontier
    from ..report._picture import frontier_picture
    from ._frontier import rows_of, show_frontier
    from ._question import csv_text, question, working

    curves, rows, size = {}, [], 0
    for m in model.split(","):
        for a in accelerator.split(","):
            with working(f"searching all layouts of {m} on {a}"):
                scenario = question(m, a, **options)
                found = certified_frontier(scenario, max_accelerators=max_accelerators)
                audit(scenario, found)
            curves[f"{m} on {a}"] = (found.cost, found.speed)
            rows += rows_of(found, m, a)
            size += found.space_size
    if plot is not None:
        frontier_picture(curves, plot)
    if as_json:
        typer.echo(json.dumps(rows))
    elif as_csv:
        typer.echo(csv_text(rows))
    else:
        show_frontier(rows, size)


@app.command()
def pools(
    model: o.ModelName,
    accelerator: o.AcceleratorName,
    budget: Annotated[float, typer.Option(help="US dollars per million output tokens, prompts included.")],
    first_token: Annotated[float, typer.Option(help="Longest time to the first token, s.")] = float("inf"),
    context: o.Context = 4096.0,
    output: o.Output = 512.0,
    prompt: o.Prompt = None,
    hit_rate: o.HitRate = 0.0,
    weight_bits: o.WeightBits = None,
    kv_bits: o.KvBits = None,
    price_per_hour: o.PricePerHour = None,
    speculation: o.Setting = None,
    reserve: o.Reserve = 0.1,
    max_accelerators: o.MaxAccelerators = 1024,
    as_json: o.Json = False,
) -> None:
    """Separate pools for prompts and for decoding: the best layout of each, and their ratio."""
    options = _shared(locals())
    from ._pools import pooled, show_pools
    from ._question import question, working

    with working("searching layouts of both pools"):
        scenario = question(model, accelerator, **options)
        result = pooled(scenario, model, budget, first_token, max_accelerators)
    typer.echo(json.dumps(result, indent=2)) if as_json else show_pools(result, model, accelerator)


@app.command()
def evaluate(
    points: Annotated[Path, typer.Argument(help="CSV of layouts; columns in the manual below.")],
    out: Annotated[Path | None, typer.Option(help="CSV file to write instead of printing.")] = None,
    as_json: o.Json = False,
) -> None:
    """Many layouts at once, CSV to CSV.

    Columns: model, accelerator, tensor, batch, and optionally pipeline, expert, data, draft_tokens,
    context, output, weight_bits, kv_bits, price_per_hour.
    """
    from ._evaluate import evaluate_file
    from ._question import csv_text, working

    with working("evaluating layouts"):
        rows = evaluate_file(points)
    text = json.dumps(rows) if as_json else csv_text(rows)
    if out is None:
        typer.echo(text)
        return
    try:
        out.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write '{out}': {error.strerror}") from error


@app.command()
def calibrate(
    data: Annotated[Path, typer.Argument(help="CSV of measured points; columns in the manual below.")],
    on_bad: Annotated[str, typer.Option(help="What to do with bad rows: refuse or skip.")] = "refuse",
    prior: Annotated[str, typer.Option(help="Start from: shipped constants, or physics.")] = "shipped",
    held_out: Annotated[
        str, typer.Option(help="Leave out each: model, accelerator, engine; or none.")
    ] = "model",
    kinds: Annotated[
        str, typer.Option(help="Kinds of rows to use.")
    ] = "decode_steady,serving_agg,serving_disagg",
    worst: Annotated[int, typer.Option(min=0, help="Rows in the table of the worst.")] = 15,
    out: Annotated[Path | None, typer.Option(help="TOML file for the fitted constants.")] = None,
    plot: o.Plot = None,
    as_json: o.Json = False,
) -> None:
    """Fit the cost model's constants to measured times per output token.

    Columns needed: model, gpu, batch (requests in flight on all replicas), tpot_ms (milliseconds
    between two output tokens). Optional: hf_model, engine, kind (decode_steady, serving_agg,
    serving_disagg or e2e_offline), n_gpus, replicas, tp, pp, attn_dp, ep, isl and osl (prompt and
    output tokens), weight_prec, kv_prec (bf16, fp16, fp8, int8, int4, nvfp4), spec_decode
    ("MTP2, acceptance length 2.58"), ttft_ms, out_tok_s_per_gpu (only to prove that prompts are
    shared). Other columns are ignored.
    """
    _check_picture(plot)
    from ._calibrate import answer, check_out, show
    from ._question import working

    check_out(out)
    with working("fitting constants") as status:
        say = (lambda text: None) if status is None else status.update
        found = answer(data, on_bad, prior, held_out, kinds, worst, out, plot, say)
    typer.echo(json.dumps(found, indent=2)) if as_json else show(found)


@app.command()
def sweep(
    config: Annotated[Path, typer.Argument(help="TOML file; configs/sweeps holds examples.")],
    out: Annotated[Path | None, typer.Option(help="File to write: .csv or .parquet.")] = None,
    coordinator: Annotated[str | None, typer.Option(help="HOST:PORT of process 0 of several.")] = None,
    processes: Annotated[int | None, typer.Option(min=1, help="Processes of the run.")] = None,
    process: Annotated[int | None, typer.Option(min=0, help="Number of this process, from 0.")] = None,
    distributed: Annotated[bool, typer.Option(help="Ask the scheduler (SLURM, MPI) for these.")] = False,
    as_json: o.Json = False,
) -> None:
    """Many scenarios: a grid or a sample over any of their numbers, resumable.

    Completed chunks lie in OUT.parts until the end. The same command takes up a run that was stopped.
    Several processes, each with the same command and its own --process, share the work; all must see
    the folder of OUT.
    """
    from ._sweep import run

    run(config, out or Path(config.stem + ".csv"), (coordinator, processes, process), distributed, as_json)


@app.command()
def models(as_json: o.Json = False) -> None:
    """The models of the catalogue, with parameters and sources."""
    from ._catalogue import model_rows, show_rows

    rows = model_rows()
    typer.echo(json.dumps(rows)) if as_json else show_rows(rows)


@app.command()
def accelerators(as_json: o.Json = False) -> None:
    """The accelerators of the catalogue, with memory, bandwidth, price and sources."""
    from ._catalogue import accelerator_rows, show_rows

    rows = accelerator_rows()
    typer.echo(json.dumps(rows)) if as_json else show_rows(rows)


_SHARED = (
    "context output demand weight_bits kv_bits price_per_hour draft acceptance max_draft_tokens reserve "
    "speculation prompt hit_rate chunk_tokens overlap expert_imbalance engine_overhead_s dispatch_bits "
    "purchase life_years utilisation power_price pue engine"
).split()


def _shared(values: dict[str, Any]) -> dict[str, Any]:
    """The options that make up a scenario."""
    return {k: values[k] for k in _SHARED if k in values}


def _check_picture(path: Path | None) -> None:
    if path is not None:
        from ..report._picture import check_path

        check_path(path)


def _deliver(
    result: dict[str, Any], model: str, accelerator: str, plot: Path | None, as_json: bool, as_csv: bool
) -> None:
    from ._optimize import flat, show
    from ._question import csv_text

    if plot is not None:
        from ..report._picture import step_picture

        step_picture(result, f"{model} on {result['layout']['accelerators']} x {accelerator}", plot)
    if as_json:
        typer.echo(json.dumps(result, indent=2))
    elif as_csv:
        typer.echo(csv_text([flat(result)]))
    else:
        show(result, model, accelerator)


def main() -> Any:
    """Entry point of the console script."""
    cache_compilations()
    try:
        return app()
    except (InputError, RuntimeError) as error:
        typer.echo(f"jaxecon: {error}", err=True)
        raise SystemExit(2) from None
