"""lambda for every parameter of any traced loss.

Paper: Sec. III B, Eqs. (17) and (18).
"""

import operator
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from functools import reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gradless.jaxprs import Array
from gradless.signal_norm.values import Sink, Track, Value
from gradless.signal_norm.walk import Walk

Overrides = Mapping[str, Any] | None


def is_array(leaf: Any) -> bool:
    """True for arrays, tracers and abstract arrays; not for numbers, functions and other things a pytree may hold."""
    return hasattr(leaf, "shape") and hasattr(leaf, "dtype")


def leaf_names(paths: Sequence[Any]) -> list[str]:
    """The names of leaves, dotted as in "layers.0.weight"; ["a.b"] and ["a"]["b"], which would share one, are not."""
    names = [jax.tree_util.keystr(path, simple=True, separator=".") for path in paths]
    count = Counter(names)
    return [name if count[name] == 1 else jax.tree_util.keystr(path) for name, path in zip(names, paths, strict=True)]


def is_trainable(leaf: Any) -> bool:
    """Whether a leaf has a lambda: an array of an inexact dtype, complex ones too."""
    return is_array(leaf) and jnp.issubdtype(leaf.dtype, jnp.inexact)


def abstract(leaf: Any) -> jax.ShapeDtypeStruct:
    """Shape and dtype of an array, as JAX will hold it."""
    dtype = leaf.dtype
    if not jnp.issubdtype(dtype, jax.dtypes.extended):
        dtype = jax.dtypes.canonicalize_dtype(dtype)
    return jax.ShapeDtypeStruct(leaf.shape, dtype, weak_type=getattr(leaf, "weak_type", False))


def check_overrides(overrides: Overrides, paths: Sequence[str], leaves: Sequence[Any]) -> dict[str, Array]:
    """lambda given by hand, as compact arrays."""
    shapes, checked = dict(zip(paths, leaves, strict=True)), {}
    for path, value in (overrides or {}).items():
        if path not in shapes:
            near = ", ".join(f'"{p}"' for p in get_close_matches(path, paths, n=3, cutoff=0.0))
            raise ValueError(
                f'signal_norm has a value for "{path}", which is no trainable leaf; the closest are {near}'
            )
        given, shape = np.asarray(value, np.float64), tuple(shapes[path].shape)
        if not np.all(np.isfinite(given) & (given > 0)):
            raise ValueError(f'signal_norm["{path}"] must be positive and finite, got {value}')
        if given.ndim > len(shape) or any(
            a not in (1, b) for a, b in zip(given.shape[::-1], shape[::-1], strict=False)
        ):
            raise ValueError(f'signal_norm["{path}"] must broadcast to the leaf {shape}, got shape {given.shape}')
        checked[path] = given.reshape((1,) * (len(shape) - given.ndim) + given.shape)
    return checked


def lambda_dtype(leaf: Any) -> Any:
    """The real dtype of a leaf, float32 at least."""
    return jnp.finfo(jnp.promote_types(leaf.dtype, jnp.float32)).dtype


class Squares(NamedTuple):
    """The squared inputs of the neurons that a leaf feeds, summed over them and averaged over the data."""

    total: Array
    uses: Array | None  # number of them, per element; None where all have the same number and the total is their mean

    @classmethod
    def of(cls, total: Array, count: Array) -> "Squares":
        """From a sum over the uses of a leaf."""
        if not isinstance(count, np.ndarray):
            return cls(total, count)
        # Known while tracing: the same number of uses for the whole leaf.
        return cls(total if count.item() == 1 else total / count.item(), None)

    def mean(self) -> Array:
        """The mean over the uses; 1 for elements that were not used, which makes lambda 1."""
        if self.uses is None:
            return self.total
        return jnp.where(self.uses > 0, self.total / jnp.where(self.uses > 0, self.uses, 1), 1)

    @classmethod
    def together(cls, parts: "Sequence[Squares]") -> "Squares":
        """Of equal parts of the data, added up in their order."""
        total = reduce(operator.add, [part.total for part in parts])
        if parts[0].uses is None:
            return cls(total / len(parts), None)
        return cls(total, reduce(operator.add, [part.uses for part in parts]))


def inverse_roots(means: list[Array]) -> list[Array]:
    """lambda from the mean sums of squares: the inverse root, 0 where all inputs vanish.

    Paper: Sec. III B, Eq. (17) and the sentence after it. All leaves go through one vector, which compiles faster.
    """
    if not means:
        return []
    mean = jnp.concatenate([m.ravel() for m in means])
    is_zero = mean < jnp.finfo(mean.dtype).tiny
    roots = jnp.where(is_zero, 0, jax.lax.rsqrt(jnp.where(is_zero, 1, mean)))
    parts = jnp.split(roots, np.cumsum([m.size for m in means])[:-1])
    return [part.reshape(m.shape) for part, m in zip(parts, means, strict=True)]


class TracedSignal:
    """A loss traced once, which gives U and lambda from one forward pass.

    Paper: Sec. III B, lambda comes "from the pass through the data immediately before the proposed move".
    """

    def __init__(self, loss: Callable[..., Any], params: Any, batch: Any = None, overrides: Overrides = None) -> None:
        self.tree: Any
        leaves, self.tree = jax.tree_util.tree_flatten_with_path(params)
        self.static = [None if is_array(leaf) else leaf for _, leaf in leaves]
        self.where = [i for i, (_, leaf) in enumerate(leaves) if is_array(leaf)]
        names = leaf_names([path for path, _ in leaves])
        self.leaves = [abstract(leaves[i][1]) for i in self.where]
        self.trainable = [k for k, leaf in enumerate(self.leaves) if is_trainable(leaf)]
        self.paths = tuple(names[self.where[k]] for k in self.trainable)
        self.by_hand = check_overrides(overrides, self.paths, [self.leaves[k] for k in self.trainable])
        self.batch = (
            None if batch is None else jax.tree.map(lambda x: abstract(jnp.asarray(x) if not is_array(x) else x), batch)
        )

        def flat_loss(arrays: list[Array], batch: Any) -> Any:
            params = self.join(arrays)
            return loss(params) if batch is None else loss(params, batch)

        self.jaxpr, shape = jax.make_jaxpr(flat_loss, return_shape=True)(self.leaves, self.batch)
        self.out_tree: Any = jax.tree.structure(shape)
        jax.eval_shape(self.evaluate, self.leaves, self.batch, None)  # refuses here what cannot be read
        self.num_terms = len(jax.eval_shape(self.data_terms, self.batch))

    def join(self, arrays: Sequence[Any], others: Any = None) -> Any:
        """The pytree of parameters with these arrays; what is no array comes from the traced one, or is `others`."""
        leaves = list(self.static) if others is None else [others] * len(self.static)
        for i, array in zip(self.where, arrays, strict=True):
            leaves[i] = array
        return self.tree.unflatten(leaves)

    def arrays(self, params: Any) -> list[Array]:
        """The arrays of a pytree of parameters, checked against the traced ones."""
        leaves = [leaf for leaf in jax.tree.leaves(params) if is_array(leaf)]
        check_shapes("params", leaves, self.leaves)
        return [jnp.asarray(leaf) for leaf in leaves]

    def values(self, arrays: Sequence[Array | None], batch: Any) -> tuple[list[Value], list[Sink]]:
        """The inputs of the program: a sink for each trainable leaf, but none for those given by hand."""
        params = [Value(array, of_params=True) for array in arrays]
        sinks = [Sink((path,), self.leaves[k].shape) for k, path in zip(self.trainable, self.paths, strict=True)]
        for k, sink in zip(self.trainable, sinks, strict=True):
            is_sought = sink.leaves[0] not in self.by_hand
            params[k] = Value(arrays[k], of_params=True, tracks=(Track(sink, ()),) if is_sought else ())
        data = [jnp.asarray(x) for x in jax.tree.leaves(batch)]
        check_shapes("batch", data, jax.tree.leaves(self.batch))
        return [*params, *(Value(x, of_data=True) for x in data)], sinks

    def consts(self) -> list[Value]:
        """Arrays that the loss closes over; without a batch, arrays of integers are taken for data such as tokens."""
        return [
            Value(c, of_data=self.batch is None and np.ndim(c) > 0 and jnp.issubdtype(c.dtype, jnp.integer))
            for c in self.jaxpr.consts
        ]

    def data_terms(self, batch: Any = None) -> tuple[Array, ...]:
        """The sums of squares that depend on the batch alone (the first layer's inputs), computed once per batch."""
        level = Walk(is_data_only=True)
        inputs, _ = self.values([None] * len(self.leaves), batch)
        level.run(self.jaxpr.jaxpr, self.consts(), inputs)
        return tuple(use.own() for use in level.data_uses)

    def __call__(self, params: Any, batch: Any = None, terms: Sequence[Array] | None = None) -> tuple[Any, list[Array]]:
        """U and, for each trainable leaf in the order of `jax.tree.leaves`, its lambda as a compact array."""
        return self.evaluate(self.arrays(params), batch, terms)

    def evaluate(self, arrays: list[Array], batch: Any, terms: Sequence[Array] | None) -> tuple[Any, list[Array]]:
        out, squares = self.look(arrays, batch, terms)
        return out, self.lambdas(squares)

    def look(self, arrays: list[Array], batch: Any, terms: Sequence[Array] | None) -> tuple[Any, dict[str, Squares]]:
        """U and, for each trainable leaf that feeds neurons, their squared inputs."""
        if terms is not None and len(terms) != self.num_terms:
            raise ValueError(f"terms must be those of data_terms(batch), {self.num_terms} arrays, got {len(terms)}")
        level = Walk(terms=None if terms is None else iter(terms))
        inputs, sinks = self.values(arrays, batch)
        outs = level.run(self.jaxpr.jaxpr, self.consts(), inputs)
        level.finish()
        squares = {sink.leaves[0]: Squares.of(*result) for sink in sinks if (result := sink.result()) is not None}
        return self.out_tree.unflatten([out.array for out in outs]), squares

    def lambdas(self, squares: dict[str, Squares]) -> list[Array]:
        """lambda of every trainable leaf: from its inputs, by hand, or 1. Paper: Eq. (18)."""
        roots = inverse_roots([one.mean() for one in squares.values()])
        lams: dict[str, Array] = dict(zip(squares, roots, strict=True)) | self.by_hand
        leaves = {path: self.leaves[k] for k, path in zip(self.trainable, self.paths, strict=True)}
        ones = {path: np.ones((1,) * len(leaf.shape)) for path, leaf in leaves.items()}
        return [jnp.asarray((ones | lams)[path], lambda_dtype(leaf)) for path, leaf in leaves.items()]

    def unflatten(self, lams: Sequence[Array]) -> Any:
        """lambda as a pytree like the parameters; 1.0 for every leaf that is not trainable."""
        whole: list[Any] = [1.0] * len(self.where)
        for k, lam in zip(self.trainable, lams, strict=True):
            whole[k] = lam
        return self.join(whole, others=1.0)


def check_shapes(name: str, given: Sequence[Any], traced: Sequence[Any]) -> None:
    """Raise if arrays differ in number, shape or dtype from the ones a loss was traced with."""
    got = [(tuple(x.shape), x.dtype) for x in map(abstract, given)]
    wanted = [(tuple(x.shape), x.dtype) for x in traced]
    if got != wanted:
        got_text, wanted_text = ([f"{dtype}{list(shape)}" for shape, dtype in each] for each in (got, wanted))
        raise ValueError(f"{name} must be what the loss was traced with, {wanted_text}, got {got_text}")


def trace_signal(loss: Callable[..., Any], params: Any, batch: Any = None, overrides: Overrides = None) -> TracedSignal:
    """Trace `loss(params, batch)`, or `loss(params)` without a batch, for repeated use; shapes are enough."""
    return TracedSignal(loss, params, batch, overrides)


def signal_norm(loss: Callable[..., Any], params: Any, batch: Any = None, overrides: Overrides = None) -> Any:
    """lambda for every parameter of any traceable loss: a pytree like `params`, each leaf broadcastable to it.

    Paper: Sec. III B, Eqs. (17) and (18): lambda is the inverse root of the mean over data of the sum of the squared
    inputs of the neuron that a weight feeds, and 1 for biases.

    loss: `loss(params, batch)`, or `loss(params)`, as in `gl.train`.
    params: the point at which lambda is wanted, a pytree.
    batch: the data to average over.
    overrides: lambda by hand, {"layers.0.weight": 0.1}: a positive number or an array that broadcasts.
    """
    traced = trace_signal(loss, params, batch, overrides)
    _, lams = jax.jit(lambda arrays, batch: traced.evaluate(arrays, batch, None))(traced.arrays(params), batch)
    return traced.unflatten(lams)
