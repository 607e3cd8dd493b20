"""What the estimators train on: losses by name, and any function of the targets and the predictions.

A loss made here is a `loss(params, batch)` for the engine. Equal requests give the very same function, so that fits of
the same shape share one compiled program.
"""

import inspect
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, SupportsFloat

import jax
import jax.numpy as jnp
import numpy as np

from gradless.engine.flat import ByIdentity
from gradless.models.mlp import ACTIVATIONS, MLP, Params

Batch = dict[str, jax.Array]
Metric = Callable[..., Any]  # metric(y_true, y_pred), or with sample_weight=; one number, lower is better

MULTICLASS, MULTILABEL, REGRESSION = "multiclass", "multilabel", "regression"


def outputs_of(net: MLP, params: Params, batch: Batch) -> jax.Array:
    """Return what the net says of each row.

    Signal norm takes the mean over rows of the squared inputs of a neuron. With weights that mean is to be a weighted
    one: each layer is computed from inputs times the root of the weight and then divided by it, which leaves the
    neuron's response as it is. A row of weight 0 counts for nothing.

    Paper: Sec. III B, Eq. (17), with weights.
    """
    if "root" not in batch:
        return net.apply(params, batch["x"])
    root = batch["root"][:, None]
    divisor = jnp.where(root > 0, root, 1)
    scaled = batch["x"]  # times the root already
    *hidden, last = params["layers"]
    for layer in hidden:
        scaled = root * ACTIVATIONS[net.activation].respond(scaled @ layer["weight"] / divisor + layer["bias"])
    return scaled @ last["weight"] / divisor + last["bias"]


def probabilities(task: str, outputs: Any) -> Any:
    """Return the probability of each class, or of each label on its own."""
    return jax.nn.sigmoid(outputs) if task == MULTILABEL else jax.nn.softmax(outputs)


def _cross_entropy(task: str, outputs: jax.Array, batch: Batch) -> jax.Array:
    y = batch["y"]
    if task == MULTILABEL:
        return jnp.sum(jax.nn.softplus(outputs) - y * outputs, axis=1)
    return -jnp.take_along_axis(jax.nn.log_softmax(outputs), y, axis=1)[:, 0]


def _zero_one(task: str, outputs: jax.Array, batch: Batch) -> jax.Array:
    y = batch["y"]
    is_wrong = jnp.any((outputs > 0) != (y > 0), axis=1) if task == MULTILABEL else jnp.argmax(outputs, 1) != y[:, 0]
    return is_wrong.astype(outputs.dtype)


def _squared_error(task: str, outputs: jax.Array, batch: Batch) -> jax.Array:
    if task == REGRESSION:
        return jnp.mean(((outputs - batch["z"]) * batch["share"]) ** 2, axis=1)
    wanted = batch["y"] if task == MULTILABEL else jax.nn.one_hot(batch["y"][:, 0], outputs.shape[1])
    return jnp.sum((probabilities(task, outputs) - wanted) ** 2, axis=1)


def _absolute_error(task: str, outputs: jax.Array, batch: Batch) -> jax.Array:
    return jnp.mean(jnp.abs(outputs - batch["z"]) * batch["share"], axis=1)


PerSample = Callable[[str, jax.Array, Batch], jax.Array]
CLASSIFIER_LOSSES: dict[str, PerSample] = {
    "cross_entropy": _cross_entropy,
    "squared_error": _squared_error,
    "zero_one": _zero_one,
}
REGRESSOR_LOSSES: dict[str, PerSample] = {"squared_error": _squared_error, "absolute_error": _absolute_error}
POWERS = {"squared_error": 2, "absolute_error": 1}  # of the targets' unit, in which a regressor's loss is


@lru_cache(maxsize=256)
def named_loss(net: MLP, task: str, name: str) -> Callable[[Params, Batch], jax.Array]:
    """Return the loss of that name: a mean over the samples, weighted if there are weights."""
    per_sample = (REGRESSOR_LOSSES if task == REGRESSION else CLASSIFIER_LOSSES)[name]

    def loss(params: Params, batch: Batch) -> jax.Array:
        losses = per_sample(task, outputs_of(net, params, batch), batch)
        if "weight" not in batch:
            return jnp.mean(losses)
        return jnp.sum(batch["weight"] * losses) / jnp.sum(batch["weight"])

    return loss


@lru_cache(maxsize=64)
def metric_loss(net: MLP, task: str, metric: ByIdentity, is_flat: bool) -> Callable[..., jax.Array]:
    """Return the loss that a user's metric is, or a `HostMetric` of it, which is told whose data these are."""

    def loss(params: Params, batch: Batch) -> jax.Array:
        y, predicted = shown(task, outputs_of(net, params, batch), batch, is_flat)
        weight = (batch["weight"],) if "weight" in batch else ()
        called = partial(metric.held, batch["fit"]) if "fit" in batch else metric.held
        value = call_metric(called, y, predicted, *weight)
        return jnp.asarray(value).astype(predicted.dtype)

    return loss


def shown(task: str, outputs: jax.Array, batch: Batch, is_flat: bool) -> tuple[jax.Array, jax.Array]:
    """Return the targets and the predictions as a metric is shown them: in the user's own units and shapes."""
    y = batch["y"]
    predicted = outputs * batch["spread"] + batch["centre"] if task == REGRESSION else probabilities(task, outputs)
    if task == REGRESSION:
        return (y[:, 0], predicted[:, 0]) if is_flat else (y, predicted)
    return (y[:, 0] if task == MULTICLASS else y), predicted


def call_metric(metric: Metric, y: Any, predicted: Any, *weight: Any) -> Any:
    """Call a metric, with the weights by name if there are any."""
    return metric(y, predicted, sample_weight=weight[0]) if weight else metric(y, predicted)


def takes_weights(metric: Metric) -> bool:
    """Return whether a metric has an argument `sample_weight`."""
    try:
        return "sample_weight" in inspect.signature(metric).parameters
    except (TypeError, ValueError):
        return False


def as_number(value: Any) -> float:
    """Return what a metric has returned, if that is one number."""
    if np.ndim(value):
        raise ValueError(f"loss must return one number, got an array of shape {np.shape(value)}")
    if not isinstance(value, SupportsFloat):
        raise ValueError(f"loss must return one number, got {value!r}")
    return float(value)


def is_traceable(metric: Metric, y: Any, predicted: Any, *weight: Any) -> bool:
    """Return whether JAX can compile a metric, judged by trying.

    A metric may catch what JAX raises and return something else: what does not follow the predictions is not it.
    """
    try:
        traced = jax.make_jaxpr(lambda *arrays: call_metric(metric, *arrays))(y, predicted, *weight).jaxpr
    except Exception:  # a metric of another library may refuse a tracer in any way it likes
        return False
    following = {id(traced.invars[1])}
    for equation in traced.eqns:
        if not following.isdisjoint(map(id, equation.invars)):
            following.update(map(id, equation.outvars))
    return not following.isdisjoint(map(id, traced.outvars))
