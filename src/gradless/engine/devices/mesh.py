"""`gl.mesh`: how chains, proposals and data are spread over devices, of one process or of many."""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from gradless.engine.devices.layout import Layout
from gradless.engine.plan import check_whole


@dataclass(frozen=True)
class Mesh:
    """A grid of devices with three axes."""

    chains: int
    proposals: int
    data: int
    devices: tuple[Any, ...]

    def group(self, place: int) -> Layout:
        """Return the devices of the chain at a place: groups take turns."""
        grid = np.asarray(self.devices, object).reshape(self.chains, self.proposals, self.data)
        return Layout.of(grid[place % self.chains])


def mesh(chains: int = 1, proposals: int = 1, data: int = 1, devices: Any = None) -> Mesh:
    """Spread a run over devices, the first of all that JAX has, here and in other processes.

    chains: number of groups of devices; each group runs chains of its own.
    proposals: number of a chain's proposals evaluated at a time, one per device; see `speculate` of `gl.train`.
    data: number of devices that share the data; the loss is added up across them.
    devices: which devices, a list of JAX's.
    """
    for name, value in (("chains", chains), ("proposals", proposals), ("data", data)):
        check_whole(name, value, least=1, most=1 << 20)
    available = _interleaved(jax.devices()) if devices is None else list(devices)
    needed = chains * proposals * data
    if needed > len(available):
        advice = ""
        if available and available[0].platform == "cpu":
            advice = f': on a CPU, call jax.config.update("jax_num_cpu_devices", {needed}) before anything else of JAX'
        raise ValueError(
            f"a mesh of chains={chains}, proposals={proposals}, data={data} needs {needed} devices, "
            f"there are {len(available)}{advice}"
        )
    if devices is None and jax.process_count() > 1:
        _check_processes(available[:needed], chains)
    return Mesh(chains, proposals, data, tuple(available[:needed]))


def _interleaved(devices: list[Any]) -> list[Any]:
    """Return the devices so that neighbours belong to different processes: every group then has some of each."""
    places: dict[int, int] = {}
    order = []
    for device in devices:
        places[device.process_index] = places.get(device.process_index, -1) + 1
        order.append((places[device.process_index], device.process_index))
    return [device for _, device in sorted(zip(order, devices, strict=True), key=lambda pair: pair[0])]


def _check_processes(devices: list[Any], chains: int) -> None:
    """Refuse a mesh that leaves a process without a part in some chain: it could not follow the run."""
    size = len(devices) // chains
    everyone = set(range(jax.process_count()))
    for group in range(chains):
        missing = everyone - {device.process_index for device in devices[group * size : (group + 1) * size]}
        if missing:
            raise ValueError(
                f"every chain needs devices of all {len(everyone)} processes, and process {min(missing)} has none in "
                f"group {group}: make proposals x data a multiple of {len(everyone)}, or run the chains apart, "
                "each machine with its own --seed (seed=)"
            )
