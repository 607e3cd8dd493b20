"""What a net is judged by: mean squared error, cross entropy, and how many it gets right.

The mean over samples is taken in float64 where JAX has it enabled, whatever the precision of the net: Metropolis
compares two losses that may differ in their last digits only.
"""

import jax
import jax.numpy as jnp


def mse(outputs: jax.Array, targets: jax.Array, per: str = "sample") -> jax.Array:
    """The squared error, summed over a sample's outputs (per="sample") or averaged over them (per="output").

    Paper: Sec. II A, C and E. It leaves open which of the two; zero-temperature Monte Carlo does not care.
    """
    if per not in ("sample", "output"):
        raise ValueError(f"per must be sample or output, got {per!r}")
    outputs, targets = jnp.asarray(outputs), jnp.asarray(targets)
    if outputs.shape != targets.shape:
        raise ValueError(f"targets must have the shape of outputs, {outputs.shape}, got {targets.shape}")
    squares = (outputs - targets.astype(outputs.dtype)) ** 2
    if per == "output":
        return _mean(squares)
    return _mean(jnp.sum(squares, axis=tuple(range(1, squares.ndim))))


def cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """The mean of -ln p of the right class, with p the softmax of the logits; labels are whole numbers or one-hot.

    Claims: F5 and F8. A label that is no class gives NaN.
    """
    logits, labels = jnp.asarray(logits), jnp.asarray(labels)
    log_p = jax.nn.log_softmax(logits)
    if _is_one_hot(logits, labels):
        return _mean(-jnp.sum(labels.astype(logits.dtype) * log_p, axis=-1))
    of_label = jnp.take_along_axis(log_p, labels[..., None], axis=-1)[..., 0]
    return _mean(-jnp.where(labels < 0, jnp.nan, of_label))  # as an index, -1 would be the last class


def accuracy(outputs: jax.Array, labels: jax.Array) -> jax.Array:
    """C, the fraction of samples whose largest output is that of the right class; labels as in `cross_entropy`."""
    return _mean(_is_right(outputs, labels).astype(jnp.result_type(float)))


def zero_one_error(outputs: jax.Array, labels: jax.Array) -> jax.Array:
    """1 - C, the fraction of samples whose largest output is that of a wrong class."""
    return _mean(1 - _is_right(outputs, labels).astype(jnp.result_type(float)))


def _is_right(outputs: jax.Array, labels: jax.Array) -> jax.Array:
    outputs, labels = jnp.asarray(outputs), jnp.asarray(labels)
    if _is_one_hot(outputs, labels):
        labels = jnp.argmax(labels, axis=-1)
    return jnp.argmax(outputs, axis=-1) == labels


def _is_one_hot(outputs: jax.Array, labels: jax.Array) -> bool:
    if labels.shape == outputs.shape:
        return True
    if labels.shape == outputs.shape[:-1] and jnp.issubdtype(labels.dtype, jnp.integer):
        return False
    raise ValueError(
        f"labels must be whole numbers of shape {outputs.shape[:-1]} or one-hot of shape {outputs.shape}, "
        f"got {labels.dtype} of shape {labels.shape}"
    )


def _mean(values: jax.Array) -> jax.Array:
    # result_type(float) is float64 exactly when JAX has it enabled, also inside jax.enable_x64(True).
    is_double = jnp.result_type(float) == jnp.float64
    return jnp.mean(values, dtype=jnp.float64 if is_double else values.dtype)
