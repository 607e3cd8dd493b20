"""What a user gives to train, refused in the user's own terms before anything is compiled."""

import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gradless.engine.flat import Flattening
from gradless.engine.objective import call
from gradless.jaxprs import fingerprint
from gradless.settings import is_function, is_one_per_chain
from gradless.types import Loss

NOT_TRACEABLE = (
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.ConcretizationTypeError,
)


def trace(name: str, function: Callable[..., Any], *args: Any) -> tuple[Any, str]:
    """Return the shape of what a function of the user's returns, and the fingerprint of what it computes now.

    The numbers that it has from outside, such as a weight of a penalty, may be others the next time.
    """
    try:
        # Through a function of our own: of one that it has seen before JAX remembers the tracing.
        program, shape = jax.make_jaxpr(lambda *given: function(*given), return_shape=True)(*args)
    except NOT_TRACEABLE as error:
        raise ValueError(
            f"{name} must be written with jax.numpy so that it can be compiled; this one turns its arguments into "
            f"plain numbers ({type(error).__name__})"
        ) from error
    return shape, fingerprint(program)


def check_loss(loss: Loss, flattening: Flattening, data: Any, has_data: bool) -> str:
    """Refuse, in the user's own terms, a loss that cannot be trained; return its fingerprint."""
    _check_function("loss", loss, "batch", has_data, "data")
    value, traced = trace(
        "loss", lambda x, d: call(loss, flattening.unflatten(x), d, has_data), flattening.some_x(), data
    )
    _check_number("loss", value)
    if not jnp.issubdtype(value.dtype, jnp.floating):
        raise ValueError(f"loss must return a floating-point number, got {value.dtype}: convert it with .astype(float)")
    return traced


def check_error(error: Callable[..., Any], flattening: Flattening, data: Any) -> str:
    """Refuse an error of progressive batches that is not one number; return its fingerprint."""
    value, traced = trace(
        "error", lambda x, d: call(error, flattening.unflatten(x), d, True), flattening.some_x(), data
    )
    _check_number("error", value)
    return traced


def check_temperature(temperature: Callable[..., Any]) -> str:
    """Refuse a function of the step that does not give one number; return its fingerprint.

    The numbers that a schedule such as `gl.anneal` holds are no part of that: they are data of the compiled program.
    """
    held, structure = jax.tree.flatten(temperature, is_leaf=is_one_per_chain)
    numbers = [] if is_function(temperature) else [jax.ShapeDtypeStruct((), jnp.float32)] * len(held)

    def look(numbers: list[Any], n: jax.Array) -> Any:
        return (jax.tree.unflatten(structure, numbers) if numbers else temperature)(n)

    value, traced = trace("temperature", look, numbers, jax.ShapeDtypeStruct((), jnp.int32))
    _check_number("temperature", value)
    return traced


def _is_real(value: Any) -> bool:
    """Return whether a value is an array of one number that is not complex."""
    return getattr(value, "shape", None) == () and not jnp.issubdtype(value.dtype, jnp.complexfloating)


def _check_number(name: str, value: Any) -> None:
    shape = getattr(value, "shape", None)
    if shape != ():
        shown = type(value).__name__ if shape is None else f"an array of shape {shape}"
        raise ValueError(f"{name} must return one number, got {shown}: take a mean or a sum over the samples")


def check_metrics(metrics: Callable[..., Any] | None, flattening: Flattening, test: Any) -> tuple[list[str], str]:
    """Refuse metrics that are not a dict of numbers; return their names and their fingerprint."""
    if metrics is None:
        return [], ""
    _check_function("metrics", metrics, "test", test is not None, "test")

    def look(x: Any, test: Any) -> Any:
        values = call(metrics, flattening.unflatten(x), test, test is not None)
        if not isinstance(values, dict):
            raise ValueError(f"metrics must return a dict of numbers, got {type(values).__name__}")
        for name, value in values.items():
            if not isinstance(name, str):
                raise ValueError(f"metrics must be named by strings, got {name!r}: write {{{str(name)!r}: ...}}")
            if not isinstance(value, int | float) and not _is_real(value):
                shown = f"of {value.dtype}, shape {value.shape}" if hasattr(value, "shape") else f"= {value!r}"
                raise ValueError(f"metrics must return a dict of real numbers, got {name} {shown}")
        return values

    values, traced = trace("metrics", look, flattening.some_x(), test)
    return list(values), traced


def _check_function(name: str, function: Any, second: str, has_second: bool, data: str) -> None:
    """Refuse what cannot be called as name(params, second), or as name(params) where there are no such data."""
    if not callable(function):
        raise ValueError(f"{name} must be a function, got {function!r}")
    wanted = f"{name}(params, {second})" if has_second else f"{name}(params)"
    reason = f"{data} was given" if has_second else f"no {data} was given"
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # some compiled functions have no signature; the trace will tell
    try:
        signature.bind(*([None] * (2 if has_second else 1)))
    except TypeError:
        raise ValueError(
            f"{name} must take the arguments of {wanted}, since {reason}; this one is {signature}"
        ) from None


def check_data(data: Any) -> int:
    """Refuse data that are not numbers, or whose arrays do not share their leading axis; return its length, or 0."""
    arrays = jax.tree.leaves(data)
    if any(np.ndim(array) == 0 for array in arrays):
        raise ValueError("data must hold arrays with a leading axis over the samples, got a number")
    for array in arrays:
        kind = array.dtype if isinstance(array, jax.Array) else np.asarray(array).dtype
        if not any(jnp.issubdtype(kind, one) for one in (jnp.number, jnp.bool_, jax.dtypes.prng_key)):
            raise ValueError(f"data must hold arrays of numbers, got one of type {kind}")
    lengths = [np.shape(array)[0] for array in arrays]
    if len(set(lengths)) > 1:
        raise ValueError(f"data must hold arrays of one common length, got {lengths}")
    if lengths and lengths[0] == 0:
        raise ValueError("data must hold at least one sample, got 0")
    return lengths[0] if lengths else 0
