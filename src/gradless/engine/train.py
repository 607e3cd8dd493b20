"""`gl.train`: any algorithm on any loss, from any pytree of parameters."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gradless.engine import run
from gradless.engine.batches import Batches, FullBatch, Progressive, num_samples
from gradless.engine.chains import Chain, Work
from gradless.engine.flat import ByIdentity, Flattening
from gradless.engine.objective import Objective, call, check_data, check_loss
from gradless.engine.result import Result
from gradless.engine.selection import Selection
from gradless.engine.session import Listener, Session, precision
from gradless.types import Algorithm, Key, Loss, Params

NUM_RECORDS = 1000  # in a trace, unless record_every says otherwise


def train(
    algorithm: Algorithm,
    loss: Loss,
    params: Params | Callable[[Key], Params],
    *,
    data: Any = None,
    steps: int,
    batches: Batches | None = None,
    chains: int | Sequence[int] = 1,
    seed: int = 0,
    metrics: Callable[..., dict[str, jax.Array]] | None = None,
    test: Any = None,
    precision: str | None = None,
    record_every: int | None = None,
    target_loss: float | None = None,
    target_metric: str | None = None,
    time_budget: float | None = None,
    stop_when_frozen: bool = False,
    select_every: int | None = None,
    select_fraction: float = 0.25,
    callback: Callable[[dict[str, Any]], None] | None = None,
) -> Result:
    """Train by `algorithm` and return the net, its loss and the trace.

    loss: `loss(params, batch)` with data, `loss(params)` without; one number, lower is better.
    params: a pytree from which every chain starts, or a function of a key from which each chain draws its own start.
    data: a pytree of arrays with one leading axis over the samples.
    batches: `gl.full_batch()` (default), `gl.minibatch(size)` or `gl.progressive(start, error)`.
    chains: how many independent chains, or which: `chains=[3]` runs chain number 3 alone, with the same moves.
    metrics: `metrics(params, test)`, or `metrics(params)` without test data; a dict of numbers for the trace.
    precision: "float32" or "float64"; by default the parameters' own.
    record_every: steps between records of the trace; by default a thousand records, and early ones at powers of two.
    target_loss, target_metric (for instance "accuracy >= 0.9"): a chain that gets there at a record ends.
    time_budget: seconds after which the run stops.
    select_every: copy the best chains over the worst every so many steps; off by default.
    callback: called between chunks with a dict of the run's present numbers; raise to stop.
    """
    session = prepare(
        algorithm,
        loss,
        params,
        data=data,
        steps=steps,
        batches=batches or FullBatch(),
        chains=chains,
        seed=seed,
        metrics=metrics,
        test=test,
        precision_name=precision,
        record_every=record_every,
        target_loss=target_loss,
        target_metric=target_metric,
        time_budget=time_budget,
        stop_when_frozen=stop_when_frozen,
        selection=Selection(select_every, select_fraction) if select_every is not None else None,
        listeners=[_Callback(callback)] if callback else [],
    )
    session.go()
    return session.result()


def prepare(
    algorithm: Algorithm,
    loss: Loss,
    params: Params | Callable[[Key], Params],
    *,
    data: Any,
    steps: int,
    batches: Batches,
    chains: int | Sequence[int],
    seed: int,
    metrics: Callable[..., dict[str, jax.Array]] | None,
    test: Any,
    precision_name: str | None,
    record_every: int | None,
    target_loss: float | None,
    target_metric: str | None,
    time_budget: float | None,
    stop_when_frozen: bool,
    selection: Selection | None,
    listeners: list[Listener],
    is_resumed: bool = False,
) -> Session:
    """Check everything, put the data on the device, and return a session ready to go."""
    check_whole("steps", steps, least=1, most=np.iinfo(np.int32).max - 1)
    if record_every is not None:
        check_whole("record_every", record_every, least=1, most=np.iinfo(np.int32).max // 2)
    if precision_name not in (None, "float32", "float64"):
        raise ValueError(f'precision must be "float32" or "float64", got {precision_name!r}')
    indices = _chain_indices(chains)
    keys = [chain_key(seed, index) for index in indices]
    check_data(data)
    batches.check(num_samples_of(data))

    points = [_starting_point(params, key) for key in keys]
    flattening = Flattening.of(points[0], precision_name)
    with precision(flattening.dtype):
        data, test = (as_device(tree, flattening.dtype) for tree in (data, test))
        some_params = flattening.unflatten(jnp.zeros(flattening.num_parameters, flattening.dtype))
        check_loss(loss, some_params, data, data is not None)
        program = run.Program(
            Objective(
                ByIdentity(loss),
                flattening,
                has_data=data is not None,
                signal_norm=_hashable(getattr(algorithm, "signal_norm", False)),
                needs_gradient=algorithm.needs_gradient,
            ),
            batches if not isinstance(batches, Progressive) else FullBatch(),
            ByIdentity(metrics),
            ByIdentity(None),
            _metric_target(target_metric, metrics, some_params, test),
            stop_when_frozen,
        )
        work = Work(
            program,
            batches,
            data,
            test,
            key_order=jax.random.fold_in(jax.random.key(seed), 0),
            record_every=record_every or max(1, steps // NUM_RECORDS),
            target_loss=-np.inf if target_loss is None else float(target_loss),
            target_metric=_metric_value(target_metric),
        )
        algorithms = _per_chain(algorithm, len(indices), flattening.dtype)
        session = Session(
            work,
            [Chain(i, key, alg, work) for i, key, alg in zip(indices, keys, algorithms, strict=True)],
            steps,
            time_budget=np.inf if time_budget is None else float(time_budget),
            selection=selection,
            listeners=listeners,
        )
        if not is_resumed:
            session.begin([flattening.flatten(point) for point in points])
    return session


def chain_key(seed: int, index: int) -> Key:
    """Return the key of chain number `index`: the same alone or among others."""
    return jax.random.fold_in(jax.random.key(seed), index + 1)


def as_device(tree: Any, dtype: Any) -> Any:
    """Return the arrays of `tree` on the device, once, with floating-point ones in the precision of the run."""
    wide = jnp.promote_types(dtype, jnp.float32)

    def put(array: Any) -> jax.Array:
        array = np.asarray(array) if not isinstance(array, jax.Array) else array
        return jnp.asarray(array, wide if jnp.issubdtype(array.dtype, jnp.floating) else None)

    return jax.tree.map(put, tree)


def num_samples_of(data: Any) -> int:
    """Return the number of samples of data that are not on the device yet."""
    return num_samples(jax.tree.map(np.asarray, data))


def check_whole(name: str, value: Any, least: int, most: int) -> None:
    """Refuse what is not a whole number in range."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= value <= most:
        raise ValueError(f"{name} must be a whole number from {least} to {most}, got {value!r}")


def _chain_indices(chains: int | Sequence[int]) -> list[int]:
    if isinstance(chains, int | np.integer) and not isinstance(chains, bool) and chains >= 1:
        return list(range(int(chains)))
    indices = list(chains) if isinstance(chains, Sequence) and not isinstance(chains, str) else []
    if not indices or len(set(indices)) < len(indices) or any(not isinstance(i, int) or i < 0 for i in indices):
        raise ValueError(f"chains must be a whole number of at least 1, or a list of different ones, got {chains!r}")
    return indices


def _starting_point(params: Params | Callable[[Key], Params], key: Key) -> Params:
    # A function is its own only leaf; a callable pytree, such as a model that holds its weights, is not.
    is_initializer = callable(params) and jax.tree.leaves(params) == [params]
    return params(jax.random.fold_in(key, 0)) if is_initializer else params  # type: ignore[operator]


def _hashable(signal_norm: Any) -> bool | tuple[tuple[str, float], ...]:
    if isinstance(signal_norm, bool):
        return signal_norm
    if hasattr(signal_norm, "items"):
        return tuple(sorted((str(path), float(value)) for path, value in signal_norm.items()))
    raise ValueError(f'signal_norm must be True, False or a dict {{"path": value}}, got {signal_norm!r}')


def _per_chain(algorithm: Algorithm, num_chains: int, dtype: Any) -> list[Algorithm]:
    """Return each chain's own settings: a number serves all, an array holds one per chain."""
    names = [name for name in getattr(algorithm, "__dataclass_fields__", {})]
    for name in names:
        value = getattr(algorithm, name)
        if isinstance(value, list | tuple | np.ndarray | jax.Array) and np.shape(value) not in ((), (num_chains,)):
            raise ValueError(f"{name} must be one number or {num_chains}, one per chain, got shape {np.shape(value)}")
    leaves, structure = jax.tree.flatten(algorithm, is_leaf=lambda leaf: isinstance(leaf, list | tuple))

    def one(index: int) -> Algorithm:
        own = [leaf if np.ndim(leaf) == 0 else leaf[index] for leaf in leaves]
        return jax.tree.unflatten(structure, [jnp.asarray(value, dtype) for value in own])

    return [one(index) for index in range(num_chains)]


def _metric_target(target: str | None, metrics: Any, params: Any, test: Any) -> tuple[str, str] | None:
    if target is None:
        return None
    name, sense, _ = _parse_metric(target)
    known = [] if metrics is None else list(jax.eval_shape(lambda p, t: call(metrics, p, t, t is not None), params, test))
    if name not in known:
        raise ValueError(f"target_metric must name a metric of the problem ({', '.join(known) or 'none'}), got {name!r}")
    return name, sense


def _metric_value(target: str | None) -> float:
    return np.nan if target is None else _parse_metric(target)[2]


def _parse_metric(target: str) -> tuple[str, str, float]:
    found = re.fullmatch(r"\s*([\w.-]+)\s*(>=|<=)\s*([-+.\deE]+)\s*", target)
    try:
        return found[1], found[2], float(found[3])  # type: ignore[index]
    except (TypeError, ValueError):
        raise ValueError(f'target_metric must look like "accuracy >= 0.9", got {target!r}') from None


class _Callback:
    """Calls a user's function between chunks with the present numbers."""

    def __init__(self, function: Callable[[dict[str, Any]], None]):
        self.function = function

    def chunk_done(self, session: Session, rows: list[dict[str, Any]], flags: list[tuple[int, np.ndarray]]) -> None:
        latest = dict(session.rows[-1]) if session.rows else {}
        self.function({**latest, "step": session.t, "steps": session.steps, "seconds": session.seconds})

    def finished(self, session: Session) -> None:
        pass
