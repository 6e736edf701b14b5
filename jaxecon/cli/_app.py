"""Commands of `jaxecon`. Each turns bad input into one sentence and exit code 2."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from .._errors import InputError

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)

ModelName = Annotated[str, typer.Option("--model", help="Catalogue name or config.json.")]
AcceleratorName = Annotated[str, typer.Option("--accelerator", help="Catalogue name or TOML.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.callback()
def _root() -> None:
    """How fast a language model can be served at a price, and on which layout."""


@app.command()
def optimize(
    model: ModelName,
    accelerator: AcceleratorName,
    budget: Annotated[float, typer.Option(help="US dollars per million output tokens.")],
    context: Annotated[float, typer.Option(help="Tokens in the cache on average.")] = 4096.0,
    output: Annotated[float, typer.Option(help="Tokens generated per request.")] = 512.0,
    weight_bits: Annotated[float | None, typer.Option(help="Bits per weight.")] = None,
    kv_bits: Annotated[float | None, typer.Option(help="Bits per cached element.")] = None,
    price_per_hour: Annotated[float | None, typer.Option(help="US dollars per accelerator.")] = None,
    max_accelerators: Annotated[int, typer.Option(min=1, help="Largest replica.")] = 1024,
    plot: Annotated[Path | None, typer.Option(help="Picture: .png, .svg or .pdf.")] = None,
    as_json: Json = False,
) -> None:
    """The fastest legal layout within a budget, certified by exact search."""
    from ._optimize import answer, show

    from ..specs import Workload, load_accelerator, load_model
    from ..scenarios import Serving

    scenario = Serving(
        load_model(model, weight_bits=weight_bits, kv_bits=kv_bits),
        load_accelerator(accelerator, price_per_hour=price_per_hour),
        Workload(context=context, output=output),
    )
    result = answer(scenario, model, budget, max_accelerators)
    if plot is not None:
        from ..report._picture import step_picture

        parts = {k: v for k, v in result["step_time_s"].items() if k != "total"}
        speed, cost = result["speed_tokens_per_s"], result["cost_usd_per_million_tokens"]
        title = f"{model} on {result['layout']['accelerators']} x {accelerator}: "
        step_picture(parts, title + f"{speed:.1f} tokens/s at ${cost:.2f} per million tokens", plot)
    if as_json:
        typer.echo(json.dumps(result, indent=2))
    else:
        show(result, model, accelerator)


@app.command()
def frontier(
    model: ModelName,
    accelerator: AcceleratorName,
    context: Annotated[float, typer.Option(help="Tokens in the cache on average.")] = 4096.0,
    output: Annotated[float, typer.Option(help="Tokens generated per request.")] = 512.0,
    weight_bits: Annotated[float | None, typer.Option(help="Bits per weight.")] = None,
    kv_bits: Annotated[float | None, typer.Option(help="Bits per cached element.")] = None,
    price_per_hour: Annotated[float | None, typer.Option(help="US dollars per accelerator.")] = None,
    max_accelerators: Annotated[int, typer.Option(min=1, help="Largest replica.")] = 1024,
    plot: Annotated[Path | None, typer.Option(help="Picture: .png, .svg or .pdf.")] = None,
    as_json: Json = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
) -> None:
    """Every layout that no other beats in both speed and cost."""
    from ._frontier import rows_of, show_frontier

    from ..optimum import certified_frontier
    from ..scenarios import Serving
    from ..specs import Workload, load_accelerator, load_model

    scenario = Serving(
        load_model(model, weight_bits=weight_bits, kv_bits=kv_bits),
        load_accelerator(accelerator, price_per_hour=price_per_hour),
        Workload(context=context, output=output),
    )
    found = certified_frontier(scenario, max_accelerators=max_accelerators)
    rows = rows_of(found)
    if plot is not None:
        from ..report._picture import frontier_picture

        title = f"{model} on {accelerator}: the fastest legal layout at each cost"
        frontier_picture(found.speed, found.cost, title, plot)
    if as_json:
        typer.echo(json.dumps(rows))
    elif as_csv:
        typer.echo(",".join(rows[0]))
        for row in rows:
            typer.echo(",".join(str(v) for v in row.values()))
    else:
        show_frontier(rows, found.space_size)


@app.command()
def models(as_json: Json = False) -> None:
    """Names of the models in the catalogue."""
    from ..specs import list_models

    _print_names(list_models(), as_json)


@app.command()
def accelerators(as_json: Json = False) -> None:
    """Names of the accelerators in the catalogue."""
    from ..specs import list_accelerators

    _print_names(list_accelerators(), as_json)


def _print_names(names: tuple[str, ...], as_json: bool) -> None:
    typer.echo(json.dumps(names) if as_json else "\n".join(names))


def main() -> Any:
    """Entry point of the console script."""
    try:
        return app()
    except (InputError, RuntimeError) as error:
        typer.echo(f"jaxecon: {error}", err=True)
        raise SystemExit(2) from None
