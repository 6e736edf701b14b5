"""Commands on what would make serving faster; added to those of `_app`."""

import json
from pathlib import Path
from typing import Annotated

import typer

from . import _options as o
from ._app import _check_picture, _shared, app

Budget = Annotated[float, typer.Option(help="US dollars per million output tokens.")]


@app.command()
def sensitivity(
    model: o.ModelName,
    accelerator: o.AcceleratorName,
    budget: Budget,
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
    max_accelerators: o.MaxAccelerators = 1024,
    top: Annotated[int, typer.Option(min=1, help="Rows of the table and bars of the picture.")] = 16,
    far: Annotated[
        bool, typer.Option("--distances", help="Also how far each may move before the layout changes.")
    ] = False,
    plot: o.Plot = None,
    as_json: o.Json = False,
    as_csv: o.Csv = False,
) -> None:
    """What one percent more of each number buys, in percent of speed and of cost."""
    options = _shared(locals())
    _check_picture(plot)
    from ..sensitivity import elasticities
    from . import _sensitivity as s
    from ._question import csv_text, question, working

    scenario = question(model, accelerator, **options)
    with working("differentiating the optimum"):
        found = elasticities(scenario, budget, max_accelerators=max_accelerators)
        rows = s.answer(scenario, found, budget)
    shown = s.top(rows, top)
    if far:
        with working("looking for the next change of layout"):
            chosen = rows if as_json or as_csv else shown
            s.add_distances(chosen, scenario, budget, max_accelerators)
    title = f"{model} on {accelerator} at ${budget:g} per million output tokens"
    if plot is not None:
        from ..report._tornado import tornado_picture

        tornado_picture(s.shown_values(shown), f"what makes serving faster: {title}", plot)
    if as_json:
        typer.echo(json.dumps({"status": found.status, "parameters": s.plain(rows)}, indent=2))
    elif as_csv:
        typer.echo(csv_text(s.plain(rows, "|")))
    else:
        s.show(rows, shown, title)


@app.command()
def whatif(
    model: o.ModelName,
    accelerator: o.AcceleratorName,
    budget: Budget,
    set_: Annotated[
        list[str],
        typer.Option("--set", help="accelerator.hbm_bandwidth=x2, =+10% or =3.3e12; may be repeated."),
    ],
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
    max_accelerators: o.MaxAccelerators = 1024,
    as_json: o.Json = False,
) -> None:
    """A change of some numbers: predicted by elasticity beside the optimum solved anew."""
    options = _shared(locals())
    from .. import sensitivity
    from . import _sensitivity as s
    from ._question import question, working

    scenario = question(model, accelerator, **options)
    changes = s.changes_of(scenario, set_)
    with working("solving before and after"):
        found = sensitivity.whatif(scenario, budget, changes, max_accelerators=max_accelerators)
    result = s.compared(found, sensitivity.parameters(scenario), changes)
    typer.echo(json.dumps(result, indent=2)) if as_json else s.show_comparison(result)


@app.command()
def exponents(
    model: o.ModelName,
    accelerator: o.AcceleratorName,
    budget: Annotated[
        float | None,
        typer.Option(help="US dollars per million output tokens; without one, the fastest speed."),
    ] = None,
    context: o.Context = 4096.0,
    output: o.Output = 512.0,
    demand: o.Demand = None,
    weight_bits: o.WeightBits = None,
    kv_bits: o.KvBits = None,
    price_per_hour: o.PricePerHour = None,
    reserve: o.Reserve = 0.1,
    max_accelerators: o.MaxAccelerators = 1024,
    depth_exponent: Annotated[float, typer.Option(help="Layers go as parameters to this power.")] = 1 / 3,
    span: Annotated[float, typer.Option(help="Scales run from 1/span to span.")] = 2.0,
    members: Annotated[int, typer.Option(min=3, help="Scales per family.")] = 9,
    plot: o.Plot = None,
    as_json: o.Json = False,
    as_csv: o.Csv = False,
) -> None:
    """Scaling exponents of speed beside the paper's: local ones and fitted power laws."""
    options = _shared(locals())
    _check_picture(plot)
    from . import _exponents as e
    from ._question import csv_text, question, working

    scenario = question(model, accelerator, **options)
    with working("scaling the model and the machine"):
        found = e.answer(scenario, budget, depth_exponent, span, members, max_accelerators)
    rows = e.rows_of(found)
    where = "without a budget" if budget is None else f"at ${budget:g} per million output tokens"
    title = f"{model} on {accelerator}, {where}"
    if plot is not None:
        e.picture(found, f"How speed scales: {title}", plot)
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
    elif as_csv:
        typer.echo(csv_text(rows))
    else:
        e.show(rows, title)


@app.command()
def reproduce(
    names: Annotated[list[str] | None, typer.Argument(help="Experiments to run; all without any.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for figures, data and FINDINGS.md.")] = Path("results"),
    findings: Annotated[Path | None, typer.Option(help="Another file to write the findings to.")] = None,
    as_json: o.Json = False,
) -> None:
    """Every claim of the paper put to the test: stated, found, verdict."""
    from . import _reproduce as r

    chosen = r.check(names or [], out)
    found = r.run(chosen, out, findings)
    typer.echo(json.dumps(r.rows_of(found), indent=2)) if as_json else r.show(found)
