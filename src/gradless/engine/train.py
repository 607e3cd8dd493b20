"""`gl.train`: any algorithm on any loss, from any pytree of parameters."""

import dataclasses
import inspect
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gradless.engine.batches import Batches, FullBatch, Progressive
from gradless.engine.callback import Callback
from gradless.engine.chains import Chain
from gradless.engine.checks import check_data, check_error, check_loss, check_metrics, check_temperature
from gradless.engine.devices.mesh import Mesh
from gradless.engine.devices.spread import check_spread, does_speculate, shards_of, spread
from gradless.engine.disk.recording import begun
from gradless.engine.flat import ByIdentity, Flattening
from gradless.engine.objective import Objective
from gradless.engine.packed import read_as_bytes
from gradless.engine.placing import as_device, as_host
from gradless.engine.plan import Plan, chain_numbers, parse_metric
from gradless.engine.precision import is_x64, precision_of
from gradless.engine.program import Program
from gradless.engine.progress import watching
from gradless.engine.result import Result
from gradless.engine.selection import Selection
from gradless.engine.session import Session
from gradless.engine.work import Work
from gradless.records import COLUMNS
from gradless.settings import check_switch, is_function, is_one_per_chain
from gradless.threefry import root_key
from gradless.types import PARTS, Algorithm, Key, Loss, Params

Metrics = Callable[..., dict[str, jax.Array]]


def train(
    algorithm: Algorithm,
    loss: Loss,
    params: Params | Callable[..., Params],
    *,
    data: Any = None,
    steps: int,
    batches: Batches | None = None,
    chains: int | Sequence[int] = 1,
    seed: int = 0,
    metrics: Metrics | None = None,
    test: Any = None,
    precision: str | None = None,
    record_every: int | None = None,
    target_loss: float | None = None,
    target_metric: str | None = None,
    time_budget: float | None = None,
    stop_when_frozen: bool = False,
    select_every: int | None = None,
    select_fraction: float = 0.25,
    run: str | Path | None = None,
    overwrite: bool = False,
    checkpoint_every: float = 30.0,
    callback: Callable[[dict[str, Any]], None] | None = None,
    progress: bool | None = None,
    speculate: int | str | None = None,
    mesh: Mesh | None = None,
) -> Result:
    """Train by `algorithm` and return the net, its loss and the trace.

    algorithm: `gl.amc(...)`, `gl.metropolis(...)`, `gl.gradient_descent(...)` or `gl.adam(...)`; every number in it may
        be an array with one value per chain.
    loss: `loss(params, batch)` with data, `loss(params)` without; one number, lower is better.
    params: a pytree from which every chain starts, or a function of a key from which each chain draws its own start
        (if it has an argument `sigma`, it is given the chain's initial move scale). Floating-point leaves are trained;
        all others are the same in every chain.
    data: a pytree of arrays with one leading axis over the samples.
    steps: number of steps of each chain.
    batches: `gl.full_batch()` (default), `gl.minibatch(size)` or `gl.progressive(start, error)`.
    chains: how many independent chains, or which: `chains=[3]` runs chain number 3 alone, with the same moves.
    seed: of all random numbers of the run. A run that begins where another ended needs another seed, or it tries the
        same moves again; `gl.resume` continues the very run.
    metrics: `metrics(params, test)`, or `metrics(params)` without test data; a dict of numbers for the trace, under
        names that it does not have already.
    test: data for the metrics, a pytree of arrays.
    precision: "float32" or "float64"; by default the parameters' own.
    record_every: steps between records of the trace; by default a thousand records, with a time budget at least one in
        a thousand steps, and early ones at powers of two.
    target_loss, target_metric: a chain ends when a record of it meets this; a metric is given as "accuracy >= 0.9".
    time_budget: seconds after which the run stops.
    stop_when_frozen: end a chain whose moves have become too small to change x.
    select_every: copy the best chains over the worst every so many steps; off by default.
    select_fraction: share of the chains that is replaced.
    run: a folder to record the run in, so that `gl.resume` can continue it.
    overwrite: whether to replace an earlier run in that folder.
    checkpoint_every: seconds between checkpoints of a recorded run.
    callback: called between chunks with a dict of the run's present numbers: step, steps, seconds, epoch, evaluations,
        samples, loss, acceptance (since the last call), sigma, nonfinite, is_frozen, and metrics (a dict, of the last
        record); arrays with one number per chain where there are several. StopIteration in it ends the run; any other
        exception ends it too, leaves a checkpoint of that step in the folder of the run, and is raised here.
    progress: whether to show a line of present numbers while the run goes on; by default in a terminal and in a
        notebook, where the line is wiped out at the end. True prints a line every few seconds elsewhere too.
    speculate: proposals evaluated at a time, as if all but the last were rejected, or "auto"; the chain is the same.
    mesh: `gl.mesh(chains=, proposals=, data=)`, the devices to use; by default each evaluates one proposal at a time.
    """
    check_switch("overwrite", overwrite)
    if run is not None and not isinstance(run, str | os.PathLike):
        raise ValueError(f"run must be the path of a folder, got {run!r}")
    if mesh is not None and not isinstance(mesh, Mesh):
        raise ValueError(f"mesh must be made by gl.mesh(), got {mesh!r}")
    plan = Plan(
        steps=steps,
        batches=FullBatch() if batches is None else batches,
        chains=chain_numbers(chains),
        seed=seed,
        precision=precision,
        record_every=record_every,
        target_loss=target_loss,
        target_metric=target_metric,
        time_budget=time_budget,
        stop_when_frozen=stop_when_frozen,
        select_every=select_every,
        select_fraction=select_fraction,
        checkpoint_every=checkpoint_every,
        speculate=speculate,
        shards=1 if mesh is None else mesh.data,
    )
    given: dict[str, Any] = {"data": data, "metrics": metrics, "test": test, "mesh": mesh}
    listeners = [Callback(callback)] if callback is not None else []
    with watching(progress) as watchers:
        session = begun(
            lambda: prepare(algorithm, loss, params, plan, **given), run, algorithm, plan, about={}, overwrite=overwrite
        )
        session.listeners = [*watchers, *session.listeners, *listeners]
        session.go()
    return dataclasses.replace(session.result(), run=None if run is None else str(run))


def prepare(
    algorithm: Algorithm,
    loss: Loss,
    params: Params | Callable[..., Params],
    plan: Plan,
    *,
    data: Any = None,
    metrics: Metrics | None = None,
    test: Any = None,
    mesh: Mesh | None = None,
) -> Session:
    """Check everything, put the data on the device, and return a session that has not begun."""
    check_algorithm(algorithm)
    num_data = check_data(data)
    plan.batches.check(num_data)
    check_spread(plan, mesh, algorithm, num_data)
    is_double = is_x64()
    keys = [chain_key(plan.seed, number) for number in plan.chains]
    algorithms = _per_chain(algorithm, len(plan.chains))
    sigmas = [getattr(own, "sigma", None) for own in algorithms]
    points = [starting_point(params, *each) for each in zip(keys, sigmas, strict=True)]
    flattening = Flattening.of(points[0], plan.precision)
    for point in points[1:]:
        flattening.check(point)
    with precision_of(flattening.dtype):
        put = as_device if mesh is None else as_host
        data, test = (put(tree, flattening.dtype) for tree in (data, test))
        starts = [flattening.flatten(point) for point in points]
        metric_names, traced = _checked(algorithm, loss, metrics, plan, flattening, data, test)
        objective, data = _objective(algorithm, loss, plan, flattening, starts[0], data)
        work = Work(
            _program(objective, metrics, plan, traced, metric_names, does_speculate(plan, mesh)),
            plan.batches,
            put(data, flattening.dtype),
            test,
            key_order=jax.random.fold_in(root_key(plan.seed), 0),
            record_every=plan.record_every or 1,
            target_loss=-np.inf if plan.target_loss is None else plan.target_loss,
            target_metric=np.nan if plan.target_metric is None else parse_metric(plan.target_metric)[2],
        )
        chains = _chains(work, plan, mesh, keys, algorithms, flattening.dtype)
        return Session(
            chains[0].work,
            chains,
            points=starts,
            steps=plan.steps,
            time_budget=np.inf if plan.time_budget is None else plan.time_budget,
            selection=None if plan.select_every is None else Selection(plan.select_every, plan.select_fraction),
            metric_names=tuple(metric_names),
            is_double=is_double,
        )


def _checked(
    algorithm: Algorithm,
    loss: Loss,
    metrics: Metrics | None,
    plan: Plan,
    flattening: Flattening,
    data: Any,
    test: Any,
) -> tuple[list[str], tuple[str, ...]]:
    """Refuse functions that cannot be trained; return the names of the metrics, and the fingerprints of all."""
    traced = [check_loss(loss, flattening, data, data is not None)]
    if isinstance(plan.batches, Progressive):
        traced.append(check_error(plan.batches.error, flattening, data))
    temperature: Any = getattr(algorithm, "temperature", None)
    if callable(temperature):
        traced.append(check_temperature(temperature))
    names, traced_metrics = check_metrics(metrics, flattening, test)
    _check_names(names)
    return names, (*traced, traced_metrics)


def _objective(
    algorithm: Algorithm, loss: Loss, plan: Plan, flattening: Flattening, x: jax.Array, data: Any
) -> tuple[Objective, Any]:
    """Return what the algorithm asks of the loss, and the data in the form that the loss reads them in."""
    objective = Objective(
        ByIdentity(loss),
        flattening,
        has_data=data is not None,
        signal_norm=_hashable(getattr(algorithm, "signal_norm", False)),
        needs_gradient=algorithm.needs_gradient,
    )
    if data is not None and not algorithm.needs_gradient:
        data, reads_bytes = read_as_bytes(objective.value, x, data)
        objective = dataclasses.replace(objective, reads_bytes=reads_bytes)
    return dataclasses.replace(objective, shards=shards_of(plan, objective, x, data)), data


def _program(
    objective: Objective,
    metrics: Metrics | None,
    plan: Plan,
    traced: tuple[str, ...],
    metric_names: list[str],
    speculates: bool,
) -> Program:
    """Return all that is compiled in."""
    return Program(
        objective,
        plan.batches if not isinstance(plan.batches, Progressive) else FullBatch(),
        ByIdentity(metrics),
        ByIdentity(None),
        traced,
        _metric_target(plan.target_metric, metric_names),
        plan.stop_when_frozen,
        speculates=speculates,
    )


def _chains(
    work: Work, plan: Plan, mesh: Mesh | None, keys: list[Key], algorithms: list[Algorithm], dtype: Any
) -> list[Chain]:
    """Return the chains, each with its own settings and the work of its devices."""
    works, paces = spread(work, plan, mesh)
    working = jnp.promote_types(dtype, jnp.float32)
    typed = [jax.tree.map(lambda leaf: jnp.asarray(leaf, working), each) for each in algorithms]
    numbered = zip(plan.chains, keys, typed, works, paces, strict=True)
    chains = [Chain(number, key, own, its, pace=pace) for number, key, own, its, pace in numbered]
    for chain in chains:
        chain.key, chain.algorithm = chain.placed(chain.key), chain.placed(chain.algorithm)
    return chains


def chain_key(seed: int, number: int) -> Key:
    """Return the key of chain `number`: the same alone or among others."""
    return jax.random.fold_in(root_key(seed), number + 1)


def starting_point(params: Params | Callable[..., Params], key: Key, sigma: Any) -> Params:
    """Return where the chain of that key starts: at `params`, or where they, a function, draw it."""
    if not is_function(params):  # perhaps a model that holds its weights and can be called
        return params
    key_init = jax.random.fold_in(key, 0)
    signature = inspect.signature(params)
    wanted = signature.parameters.get("sigma")
    if sigma is None and wanted is not None and wanted.default is wanted.empty:
        raise ValueError(
            f"a function that draws the parameters by sigma must have a default for it, got {signature}: "
            "gradient descent and Adam have no sigma"
        )
    given = {"sigma": sigma} if wanted is not None and sigma is not None else {}
    try:
        signature.bind(key_init, **given)
    except TypeError:
        raise ValueError(f"a function that draws the parameters must take a key; this one is {signature}") from None
    return params(key_init, **given)


def _hashable(signal_norm: bool | dict[str, Any]) -> bool | tuple[tuple[str, Any], ...]:
    if isinstance(signal_norm, bool):
        return signal_norm
    return tuple(sorted((str(path), _nested(value)) for path, value in signal_norm.items()))


def _nested(value: Any) -> Any:
    return tuple(_nested(item) for item in value) if isinstance(value, list) else value


def check_algorithm(algorithm: Any) -> None:
    """Refuse what is not an algorithm, or lacks a part of one."""
    if not dataclasses.is_dataclass(algorithm) or isinstance(algorithm, type) or not hasattr(algorithm, "step"):
        raise ValueError(f"algorithm must be made by gl.amc, gl.metropolis or the like, got {algorithm!r}")
    if missing := [part for part in PARTS if not hasattr(algorithm, part)]:
        raise ValueError(f"algorithm must have {', '.join(PARTS)}; {type(algorithm).__name__} has no {missing[0]}")


def _per_chain(algorithm: Algorithm, num_chains: int) -> list[Algorithm]:
    """Return each chain's own settings: a number serves all, an array holds one per chain."""
    _check_lengths(algorithm, num_chains)
    leaves, structure = jax.tree.flatten(algorithm, is_leaf=is_one_per_chain)
    # An element stays an array, so that a 0 among other values does not switch a part off for one chain alone.
    return [
        jax.tree.unflatten(structure, [leaf if np.ndim(leaf) == 0 else np.asarray(leaf[place]) for leaf in leaves])
        for place in range(num_chains)
    ]


def _check_lengths(settings: Any, num_chains: int) -> None:
    for field in dataclasses.fields(settings):
        name, value = field.name, getattr(settings, field.name)
        if dataclasses.is_dataclass(value):
            _check_lengths(value, num_chains)
        elif isinstance(value, list | tuple | np.ndarray | jax.Array) and np.shape(value) not in ((), (num_chains,)):
            wanted = "one number" if num_chains == 1 else f"one number or {num_chains}, one per chain"
            more = f": give chains={len(value)} for one each" if num_chains == 1 and np.ndim(value) == 1 else ""
            raise ValueError(f"{name} must be {wanted}, got shape {np.shape(value)}{more}")


def _check_names(metrics: list[str]) -> None:
    """Refuse a metric that would take the place of a column of the trace."""
    for name in metrics:
        if name in COLUMNS:
            raise ValueError(f"metrics must not be named as the trace's own {', '.join(COLUMNS)}, got {name!r}")


def _metric_target(target: str | None, known: list[str]) -> tuple[str, str] | None:
    if target is None:
        return None
    name, sense, _ = parse_metric(target)
    if name not in known:
        raise ValueError(f"target_metric must name a metric ({', '.join(known) or 'there is none'}), got {name!r}")
    return name, sense
