"""A user's loss as the function of x that the algorithms see."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gradless.apart import apart
from gradless.engine.batches import num_samples
from gradless.engine.devices.layout import Layout
from gradless.engine.devices.shards import Shards
from gradless.engine.flat import ByIdentity, Flattening
from gradless.engine.packed import widened
from gradless.faster import faster
from gradless.signal_norm import Squares, TracedSignal, trace_signal
from gradless.types import Evaluate, Evaluation, Params

MAX_GATHERED = 1 << 16  # numbers; of more, the places alone would take as much memory as x


@dataclass(frozen=True)
class Objective:
    """U(x) on a batch, with what else the algorithm asks of the same pass: lambda, or the gradient."""

    loss: ByIdentity
    flattening: Flattening
    has_data: bool
    signal_norm: bool | tuple[tuple[str, Any], ...] = False
    needs_gradient: bool = False
    reads_bytes: bool = False  # whether the data are bytes that the loss makes floating-point numbers of
    shards: Shards | None = None  # how the data are divided, where they are
    layout: Layout | None = None  # the devices that share the work

    def value(self, x: jax.Array, batch: Any) -> jax.Array:
        """Return U(x)."""
        return call(self.loss.held, self.flattening.unflatten(x), batch, self.has_data)

    def mean_of(self, error: Callable[..., jax.Array], params: Params, batch: Any) -> jax.Array:
        """Return the error of a net, a mean over samples, on all of a batch."""
        if self.shards is None:
            return error(params, widened(batch))

        def of_part(x: jax.Array, part: Any, _: Any) -> jax.Array:
            return error(params, widened(part))

        parts = self.shards.all_parts(self.layout, batch, lambda part: (), of_part)
        return sum(parts(jnp.zeros(()))) / self.shards.number

    def on(self, batch: Any) -> Evaluate:
        """Return the evaluation of x on `batch`; what depends on the batch alone is computed here, once."""
        if self.needs_gradient:
            value_and_gradient = faster(jax.value_and_grad(lambda x: self.value(x, batch)))

            def with_gradient(x: jax.Array) -> Evaluation:
                loss, grad = value_and_gradient(x)
                return Evaluation(loss, grad=grad)

            return with_gradient
        if self.shards is not None:
            return self._on_shards(self.shards, batch)
        if self.signal_norm:
            return self._with_lambda(batch)
        value = faster(lambda x: self.value(x, batch))
        if self.reads_bytes:
            # Apart, or the compiler would make numbers of all bytes once before the loop, and read these at every step.
            return lambda x: Evaluation(apart(value, x))
        return lambda x: Evaluation(value(x))

    def _with_lambda(self, batch: Any) -> Evaluate:
        seen, flattening = batch if self.has_data else None, self.flattening
        traced = self._traced(seen)
        terms = terms_of(traced, seen)
        look = faster(lambda x: traced(flattening.unflatten(x), seen, terms))

        def evaluate(x: jax.Array) -> Evaluation:
            # Apart, so that a replay and a round of speculation find the same lambda to the last bit.
            loss, lam = apart(look, x)
            return _tied(loss, _per_parameter(_of_x(traced, lam), flattening))

        return evaluate

    def _traced(self, batch: Any) -> TracedSignal:
        overrides = None if self.signal_norm is True else dict(self.signal_norm)  # type: ignore[arg-type]
        loss = self.loss.held
        seen = loss if batch is None else lambda params, batch: loss(params, widened(batch))
        return trace_signal(seen, self.flattening.abstract(), batch, overrides)

    def _on_shards(self, shards: Shards, batch: Any) -> Evaluate:
        rows = num_samples(batch) // (shards.number // (self.layout.data if self.layout else 1))
        part = jax.tree.map(lambda array: jax.ShapeDtypeStruct((rows, *array.shape[1:]), array.dtype), batch)
        traced = self._traced(part) if self.signal_norm else None
        unflatten = self.flattening.unflatten

        def look(x: jax.Array, part: Any, terms: Any) -> tuple[jax.Array, Any]:
            if traced is None:
                return faster(lambda x: self.value(x, part))(x), {}
            return faster(lambda x: traced.look(traced.arrays(unflatten(x)), part, terms))(x)

        all_parts = shards.all_parts(self.layout, batch, partial(terms_of, traced), look)

        def evaluate(x: jax.Array) -> Evaluation:
            losses, squares = zip(*all_parts(x), strict=True)
            loss = shards.loss(list(losses))
            if traced is None:
                return Evaluation(loss)
            lam = traced.lambdas({path: Squares.together([one[path] for one in squares]) for path in squares[0]})
            return _tied(loss, _per_parameter(_of_x(traced, lam), self.flattening))

        return evaluate


def terms_of(traced: TracedSignal | None, batch: Any) -> tuple[jax.Array, ...]:
    """Return what lambda needs of the data alone, computed apart as lambda is."""
    arrays = [array for array in jax.tree.leaves(batch) if array.size]
    if traced is None or not arrays:
        return () if traced is None else traced.data_terms(batch)
    return apart(lambda _, batch: traced.data_terms(batch), arrays[0], batch)


def _tied(loss: jax.Array, lam: jax.Array) -> Evaluation:
    """Return loss and lambda, such that lambda has to be computed to know the loss.

    Where only the loss is asked for, the compiler would leave lambda out, and what is left could round differently.
    A lambda that is NaN, since an input is, makes the loss NaN too: from there no move could be proposed.
    """
    is_known = jnp.min(lam) >= 0
    return Evaluation(jnp.where(is_known, loss, jnp.nan), lam=lam)


def _of_x(traced: TracedSignal, lam: list[jax.Array]) -> list[jax.Array]:
    """Return lambda of the leaves that x holds: complex ones, which signal norm knows too, ride along."""
    dtypes = [traced.leaves[place].dtype for place in traced.trainable]
    return [one for one, dtype in zip(lam, dtypes, strict=True) if jnp.issubdtype(dtype, jnp.floating)]


def _per_parameter(lam: list[jax.Array], flattening: Flattening) -> jax.Array:
    """Return lambda_i for every i of x, from one array per leaf that broadcasts to it."""
    dtype = jnp.promote_types(flattening.dtype, jnp.float32)
    spread = list(zip(lam, flattening.shapes, strict=True))
    if sum(map(math.prod, flattening.shapes)) > MAX_GATHERED:
        return jnp.concatenate([jnp.broadcast_to(one, shape).ravel().astype(dtype) for one, shape in spread])
    # Hundreds of small leaves in one go: where in the list of all lambdas the one of x_i stands.
    begins = np.cumsum([0, *(one.size for one in lam)])
    places = [
        np.broadcast_to(begin + np.arange(one.size).reshape(one.shape), shape).ravel()
        for begin, (one, shape) in zip(begins, spread, strict=False)
    ]
    return jnp.concatenate([one.ravel().astype(dtype) for one in lam])[np.concatenate(places)]


def call(function: Callable[..., Any], params: Any, batch: Any, has_data: bool) -> Any:
    """Call a user's loss, metric or error the way the data ask for."""
    return function(params, widened(batch)) if has_data else function(params)
