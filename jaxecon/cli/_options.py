"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

ModelName = Annotated[str, typer.Option("--model", help="Catalogue name, config.json, or TOML.")]
AcceleratorName = Annotated[str, typer.Option("--accelerator", help="Catalogue name or TOML.")]
Context = Annotated[float, typer.Option(help="Tokens in the cache, averaged over the output.")]
Output = Annotated[float, typer.Option(help="Tokens generated per request.")]
Demand = Annotated[float | None, typer.Option(help="Tokens/s wanted by all users; one replica.")]
WeightBits = Annotated[float | None, typer.Option(help="Bits per weight.")]
KvBits = Annotated[float | None, typer.Option(help="Bits per cached element.")]
PricePerHour = Annotated[float | None, typer.Option(help="US dollars per accelerator and hour.")]
Draft = Annotated[str | None, typer.Option(help="Draft model of speculative decoding.")]
Acceptance = Annotated[float, typer.Option(help="Probability that a drafted token is accepted.")]
MaxDraft = Annotated[int, typer.Option(min=1, help="Longest draft, in tokens.")]
MaxAccelerators = Annotated[int, typer.Option(min=1, help="Largest replica.")]
Setting = Annotated[str | None, typer.Option("--speculation", help="Measured drafting head.")]
Prompt = Annotated[float | None, typer.Option(help="Tokens of a prompt; context - output/2 by default.")]
HitRate = Annotated[float, typer.Option(help="Share of a prompt found in the prefix cache.")]
Chunk = Annotated[
    float | None, typer.Option("--chunk-tokens", help="Prompts in the same replica, in such chunks.")
]
Overlap = Annotated[float, typer.Option(help="Share of communication beside computing, 0 to 1.")]
Imbalance = Annotated[float, typer.Option("--expert-imbalance", help="Busiest expert group over mean.")]
Overhead = Annotated[
    float | None, typer.Option("--engine-overhead-s", help="Seconds a step outside the accelerators.")
]
Dispatch = Annotated[float | None, typer.Option(help="Bits per activation sent to experts.")]
Purchase = Annotated[float | None, typer.Option(help="US dollars to buy one; replaces the rental.")]
Life = Annotated[float, typer.Option(help="Years of life of a bought accelerator.")]
Utilisation = Annotated[float, typer.Option(help="Share of that life in which it serves.")]
PowerPrice = Annotated[float, typer.Option(help="US dollars per kilowatt-hour.")]
Pue = Annotated[float, typer.Option(help="Energy of the site over that of its machines.")]
Grid = Annotated[float, typer.Option("--grid-intensity", help="Grams of CO2 per kilowatt-hour.")]
Reserve = Annotated[float, typer.Option(help="Share of memory kept for the runtime.")]
Engine = Annotated[str | None, typer.Option(help="Serving engine whose fitted constants to use, e.g. vllm.")]
Plot = Annotated[Path | None, typer.Option(help="Picture to write: .png, .svg or .pdf.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Csv = Annotated[bool, typer.Option("--csv", help="Print CSV.")]
