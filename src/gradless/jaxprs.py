"""Traced programs, evaluated equation by equation: what signal norm and the faster forms of a loss share."""

import hashlib
import re
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn

Array = Any  # a jax.Array or a tracer
Shape = tuple[int, ...]

CALLS = {
    "jit",
    "pjit",
    "call",
    "core_call",
    "closed_call",
    "remat",
    "remat2",
    "checkpoint",
    "custom_jvp_call",
    "custom_vjp_call",
    "custom_vjp_call_jaxpr",
    "custom_vmap_call",
}
ELEMENTWISE = (
    *("abs", "acos", "acosh", "add", "add_any", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "clamp"),
    *("complex", "conj", "cos", "cosh", "div", "erf", "erf_inv", "erfc", "exp", "exp2", "expm1", "floor", "imag"),
    *("integer_pow", "log", "log1p", "logistic", "max", "min", "mul", "neg", "nextafter", "pow", "real", "rem"),
    *("round", "rsqrt", "select_n", "sign", "sin", "sinh", "sqrt", "square", "sub", "tan", "tanh"),
    *("eq", "ne", "lt", "le", "gt", "ge", "and", "or", "not", "xor", "is_finite"),
)
ADDRESS = re.compile(r" at 0x[0-9a-f]+")  # of a function that a program names: another one at each tracing


def fingerprint(program: ClosedJaxpr) -> str:
    """A digest of a traced program and of all numbers in it: the same for two tracings that compute the same."""
    digest = hashlib.sha256(ADDRESS.sub("", str(program)).encode())
    for array in _constants(program):
        digest.update(f"{array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _constants(program: ClosedJaxpr | Jaxpr) -> Iterator[np.ndarray]:
    """All arrays that a program and those inside of it hold."""
    jaxpr, arrays = opened(program)
    for array in arrays:
        if jnp.issubdtype(array.dtype, jax.dtypes.extended):
            array = jax.random.key_data(array)
        is_here = getattr(array, "is_fully_addressable", True)  # and not in part on other machines
        yield np.asarray(array if is_here else id(array))
    for eqn in jaxpr.eqns:
        for value in eqn.params.values():
            for inner in value if isinstance(value, tuple | list) else (value,):
                if isinstance(inner, ClosedJaxpr | Jaxpr):
                    yield from _constants(inner)


def shape_of(atom: Any) -> Shape:
    """The shape of a variable or literal of a traced program."""
    return atom.aval.shape


def dtype_of(atom: Any) -> Any:
    """The dtype of a variable or number of a program."""
    return atom.aval.dtype


def are_floating(eqn: JaxprEqn) -> bool:
    """Whether all that an operation reads is floating point."""
    return all(jnp.issubdtype(dtype_of(atom), jnp.floating) for atom in eqn.invars)


def bind(eqn: JaxprEqn, arrays: Sequence[Array]) -> list[Array]:
    """Evaluate one operation as JAX itself would."""
    with eqn.ctx.manager:
        out = eqn.primitive.bind(*arrays, **eqn.primitive.get_bind_params(eqn.params))
    return list(out) if eqn.primitive.multiple_results else [out]


def literal_array(atom: Any) -> Array:
    """The array of a number written into the program."""
    return jnp.asarray(atom.val, atom.aval.dtype)


def inner_jaxpr(eqn: JaxprEqn) -> ClosedJaxpr | Jaxpr | None:
    """The program inside a call that can be walked as if it stood here (jit, remat, custom derivatives)."""
    if eqn.primitive.name not in CALLS:
        return None
    for name in ("jaxpr", "call_jaxpr", "call"):
        if name in eqn.params:
            return eqn.params[name]
    return None


def opened(jaxpr: ClosedJaxpr | Jaxpr) -> tuple[Jaxpr, Sequence[Array]]:
    """A program and its constants."""
    return (jaxpr.jaxpr, jaxpr.consts) if isinstance(jaxpr, ClosedJaxpr) else (jaxpr, ())
