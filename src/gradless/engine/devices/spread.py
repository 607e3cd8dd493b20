"""The work of a run spread over a mesh: a copy of the program and its share of the data for every group of devices."""

import dataclasses
from typing import Any

import jax

from gradless.engine.ahead.pace import Pace
from gradless.engine.batches import FullBatch, Minibatch, Progressive
from gradless.engine.devices.layout import Layout
from gradless.engine.devices.mesh import Mesh
from gradless.engine.devices.shards import Shards, reduction_of
from gradless.engine.objective import Objective
from gradless.engine.plan import Plan
from gradless.engine.work import Work


def check_spread(plan: Plan, mesh: Mesh | None, algorithm: Any, num_data: int) -> None:
    """Refuse what cannot be spread as asked for."""
    is_speculating = does_speculate(plan, mesh)
    if (is_speculating or plan.shards > 1) and not hasattr(algorithm, "decide"):
        what = "speculate" if is_speculating else "a mesh with data > 1"
        raise ValueError(f"{what} needs an algorithm with proposals, mc or amc, got {algorithm.name}")
    if mesh is not None and plan.shards % mesh.data:
        raise ValueError(
            f"data={mesh.data} of the mesh must divide the {plan.shards} parts into which the run divides its data"
        )
    if plan.shards == 1:
        return
    if not num_data:
        raise ValueError("a mesh with data > 1 needs data, and there are none: use proposals")
    batches = plan.batches
    if isinstance(batches, Minibatch) or (isinstance(batches, Progressive) and batches.redraw):
        raise ValueError("a mesh with data > 1 needs the full batch or a growing one, got minibatches: use proposals")
    sizes = [num_data, *([] if isinstance(batches, FullBatch) else [batches.start])]
    for size in sizes:
        if size % plan.shards:
            raise ValueError(f"data={plan.shards} of the mesh must divide the {size} samples that a step sees")


def does_speculate(plan: Plan, mesh: Mesh | None) -> bool:
    """Return whether steps are made in rounds of several proposals."""
    return plan.speculate not in (None, 1) or (mesh is not None and mesh.proposals > 1)


def shards_of(plan: Plan, objective: Objective, x: jax.Array, data: Any) -> Shards | None:
    """Return how the data are divided, None if they are whole."""
    return None if plan.shards == 1 else Shards(plan.shards, reduction_of(objective.value, x, data))


def spread(work: Work, plan: Plan, mesh: Mesh | None) -> tuple[list[Work], list[Pace]]:
    """Return for each chain its work, one per group of devices, and its pace."""
    places = range(len(plan.chains))
    if mesh is None:
        return [work for _ in places], [Pace.of(plan.speculate, 1) for _ in places]
    layouts = [mesh.group(place) for place in places]
    groups = {layout: _placed(work, layout) for layout in dict.fromkeys(layouts)}
    return [groups[layout] for layout in layouts], [Pace.of(plan.speculate, mesh.proposals) for _ in places]


def _placed(work: Work, layout: Layout) -> Work:
    objective = dataclasses.replace(work.program.objective, layout=layout)
    return dataclasses.replace(
        work,
        program=dataclasses.replace(work.program, objective=objective),
        data=layout.place(work.data, is_split=True),
        test=layout.place(work.test),
        source=work.data,
        held={},
    )
