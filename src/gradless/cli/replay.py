"""`gradless replay RUN --step N`."""

from pathlib import Path

import click
import numpy as np

from gradless.cli.console import plain_console
from gradless.cli.errors import one_line
from gradless.cli.follow import enable_float64


@click.command()
@click.argument("run", type=click.Path())
@click.option("--step", type=click.IntRange(0), required=True, help="the step to go to")
@click.option("--verify", is_flag=True, help="compare with the checkpoints on the way, bit for bit")
@click.option("--out", "-o", type=click.Path(dir_okay=False), help="write the parameters there, as safetensors")
@click.option("--overwrite", is_flag=True, help="replace an existing file")
@click.option("--trust", is_flag=True, help="run the code of the module that a run of module:object names")
def command(run: str, step: int, verify: bool, out: str | None, overwrite: bool, trust: bool) -> None:
    """Rebuild the net of RUN at any step from its seed and its log of accepted steps."""
    enable_float64()
    from gradless.records import write_atomic
    from gradless.runs import named_parameters, rebuild, standing

    console = plain_console()
    with one_line():
        if out and Path(out).exists() and not overwrite:
            raise ValueError(f"{out} exists: choose another name, or give --overwrite")
        if out and not Path(out).parent.is_dir():
            raise ValueError(f"{out} cannot be written: there is no folder {Path(out).parent}")
        rebuilt = rebuild(run, step, verify=verify, trust=trust)
        for place, (loss, metrics) in enumerate(standing(rebuilt)):
            words = "  ".join(f"{name} {value:.5g}" for name, value in metrics.items())
            who = f"chain {place}: " if len(rebuilt.states) > 1 else ""
            console.print(f"{who}step {step:,}  U {loss:.6g}  {words}")
        if out:
            from safetensors.numpy import save

            tensors = {name: np.asarray(value) for name, value in named_parameters(rebuilt).items()}
            write_atomic(Path(out), save(tensors))
            console.print(f"parameters in {out}")
    for at, difference in rebuilt.checks:
        verdict = "equal bit for bit" if difference is None else f"{difference} differs"
        console.print(f"checkpoint {at:,}: {verdict}", style=None if difference is None else "red")
    if any(difference for _, difference in rebuilt.checks):
        raise SystemExit(1)
