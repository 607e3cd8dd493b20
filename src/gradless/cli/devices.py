"""The flags for several devices, processes and machines, and how JAX is set up for them before anything is computed."""

import contextlib
import os
import re
import sys
from collections.abc import Iterator
from typing import Any

import click

AXES = ("chains", "proposals", "data")
HEARTBEAT_SECONDS = 30  # a process that is not heard of for so long is taken for dead


class MeshText(click.ParamType):
    """Axes of a mesh such as proposals=4,data=2."""

    name = "AXIS=N,..."

    def convert(self, value: Any, param: Any, ctx: Any) -> dict[str, int]:
        if isinstance(value, dict):
            return value
        found: dict[str, int] = {}
        for part in str(value).split(","):
            axis, _, number = part.strip().partition("=")
            if axis not in AXES or not re.fullmatch(r"[1-9]\d{0,5}", number) or axis in found:
                self.fail(
                    f"must look like proposals=4,data=2 with axes among {', '.join(AXES)}, got {value!r}", param, ctx
                )
            found[axis] = int(number)
        return found


class Speculate(click.ParamType):
    """A number of proposals, or `auto`."""

    name = "K|auto"

    def convert(self, value: Any, param: Any, ctx: Any) -> int | str:
        if value == "auto":
            return value
        try:
            return int(value)
        except ValueError:
            self.fail(f"must be a whole number or auto, got {value!r}", param, ctx)


DEVICE_OPTIONS = [
    click.Option(["--speculate"], type=Speculate(), help="proposals evaluated at a time; the chain stays the same"),
    click.Option(["--mesh"], type=MeshText(), help="spread over devices, for instance proposals=4,data=2"),
    click.Option(
        ["--distributed"], is_flag=True, help="this is one of several processes, under Slurm, Open MPI or torchrun"
    ),
    click.Option(["--coordinator"], metavar="HOST:PORT", help="address of process 0, where no launcher tells it"),
    click.Option(["--process"], type=click.IntRange(0), help="which of the processes this is, from 0"),
    click.Option(["--processes"], type=click.IntRange(1), help="how many there are"),
]


def set_up(flags: dict[str, Any]) -> Any:
    """Connect with the other processes if there are any; return the mesh that the flags ask for, or None."""
    wanted = flags.get("mesh")
    needed = 1
    for number in (wanted or {}).values():
        needed *= number
    given = [flags.get(name) is not None for name in ("coordinator", "process", "processes")]
    if any(given) and not all(given):
        raise ValueError("--coordinator, --process and --processes belong together: give all three, or --distributed")
    if all(given) or flags.get("distributed"):
        place = from_flags(flags) if all(given) else from_torchrun(dict(os.environ))
        if wanted is None:
            raise ValueError("several processes need a mesh to share: for instance --mesh proposals=2")
        connect(place, needed)
    elif needed > 1:
        _make_cpu_devices(needed)
    if wanted is None:
        return None
    from gradless.engine.devices.mesh import mesh

    return mesh(**wanted)


def from_flags(flags: dict[str, Any]) -> dict[str, Any]:
    """Return what `jax.distributed.initialize` is to be told by hand."""
    if not re.fullmatch(r"[^\s:/]+:\d{1,5}|\[[0-9a-fA-F:]+\]:\d{1,5}", flags["coordinator"]):
        raise ValueError(f"--coordinator must be HOST:PORT, got {flags['coordinator']!r}")
    if flags["process"] >= flags["processes"]:
        raise ValueError(f"--process must be below the {flags['processes']} of --processes, got {flags['process']}")
    names = ("coordinator", "processes", "process")
    known = ("coordinator_address", "num_processes", "process_id")
    return {theirs: flags[ours] for ours, theirs in zip(names, known, strict=True)}


def from_torchrun(variables: dict[str, str]) -> dict[str, Any]:
    """Return what torchrun's variables say; without them JAX looks for Slurm and Open MPI by itself."""
    if not {"MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE"} <= variables.keys():
        return {}
    port = int(variables["MASTER_PORT"]) + 1  # torchrun itself listens at its own
    return {
        "coordinator_address": f"{variables['MASTER_ADDR']}:{port}",
        "num_processes": int(variables["WORLD_SIZE"]),
        "process_id": int(variables["RANK"]),
    }


def connect(place: dict[str, Any], num_devices: int) -> None:
    """Join the other processes; on CPUs every process brings its share of the devices."""
    import jax

    _keep_standard_output_clean()
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    # Otherwise JAX aborts a process, without a word to us, when it hears that another one has died.
    jax.config.update("jax_enable_recoverability", True)
    processes = place.get("num_processes") or _num_processes(dict(os.environ))
    if processes:
        _make_cpu_devices(-(-num_devices // processes))
    try:
        jax.distributed.initialize(
            **place, heartbeat_timeout_seconds=HEARTBEAT_SECONDS, shutdown_timeout_seconds=HEARTBEAT_SECONDS
        )
    except (RuntimeError, ValueError) as error:
        words = str(error).splitlines()[0]
        raise ValueError(
            f"the other processes were not found ({words}): give --coordinator, --process and --processes"
        ) from error


@contextlib.contextmanager
def together() -> Iterator[None]:
    """Say in one line that another process has gone, and leave at once: what it holds up cannot be waited for."""
    import jax

    try:
        yield
    except Exception as error:
        is_lost = isinstance(error, jax.errors.JaxRuntimeError) or "Gloo" in str(error)
        if jax.process_count() == 1 or not is_lost:
            raise
        words = str(error).splitlines()[0]
        click.echo(f"Error: another process of this run has ended ({words}); go on with gradless resume", err=True)
        os._exit(1)


def _num_processes(variables: dict[str, str]) -> int:
    """Return what Slurm or Open MPI say of the number of processes, 0 if they say nothing."""
    return int(variables.get("SLURM_NTASKS") or variables.get("OMPI_COMM_WORLD_SIZE") or 0)


def _keep_standard_output_clean() -> None:
    """Let what libraries below Python print go to standard error: gloo tells of its connections on standard output."""
    try:
        ours = os.dup(1)
        os.dup2(2, 1)
    except OSError:
        return  # closed by the caller
    sys.stdout = open(ours, "w", buffering=1, encoding=sys.stdout.encoding)  # noqa: SIM115


def _make_cpu_devices(number: int) -> None:
    """Divide the CPU of this process into so many devices; has no effect on accelerators."""
    import jax

    try:
        jax.config.update("jax_num_cpu_devices", number)
    except RuntimeError:
        return  # JAX has begun already, with what it has; the mesh will say if that is not enough
