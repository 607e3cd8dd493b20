"""Traced programs, evaluated equation by equation: what signal norm and the faster forms of a loss share."""

import functools
import hashlib
import re
import types
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
ADDRESS = re.compile(r" at 0x[0-9a-f]+")  # of what a program names: often another one at each tracing
CALLBACKS = ("pure_callback", "io_callback")


def fingerprint(program: ClosedJaxpr) -> str:
    """A digest of a traced program, of all numbers in it and of the Python functions that it calls back.

    It is the same for two tracings that compute the same.
    """
    digest = hashlib.sha256(ADDRESS.sub("", str(program)).encode())
    for jaxpr, arrays in _programs(program):
        for array in map(_as_numbers, arrays):
            digest.update(f"{array.dtype} {array.shape}".encode())
            digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        for eqn in jaxpr.eqns:
            if eqn.primitive.name in CALLBACKS:
                callback = eqn.params["callback"]
                digest.update(identity(getattr(callback, "callback_func", callback)).encode())
    return digest.hexdigest()


def identity(value: Any, within: tuple[Any, ...] = ()) -> str:
    """What tells a Python function, or a value that it holds, from all others that are alive.

    A function written inside of a loss is another object at each tracing; its code and what it has from outside stay.

    within: the functions that hold it; they may hold each other, as those that call each other do.
    """
    if isinstance(value, int | float | complex | str | bytes | None):
        return repr(value)
    if isinstance(value, functools.partial):
        return identity((value.func, value.args, *value.keywords.items()), within)
    if isinstance(value, tuple):
        return f"({', '.join(identity(one, within) for one in value)})"
    if isinstance(value, types.MethodType):
        return identity((value.__func__, value.__self__), within)
    if not isinstance(value, types.FunctionType):
        return str(id(value))
    if value in within:
        return f"the function {within.index(value)} around it"
    held = tuple(cell.cell_contents for cell in value.__closure__ or () if cell != types.CellType())
    defaults = (value.__defaults__, tuple((value.__kwdefaults__ or {}).items()))
    return f"{id(value.__code__)} {identity((held, defaults), (*within, value))}"


def _programs(program: ClosedJaxpr | Jaxpr) -> Iterator[tuple[Jaxpr, Sequence[Array]]]:
    """A program and those inside of it, each with the arrays that it holds."""
    jaxpr, arrays = opened(program)
    yield jaxpr, arrays
    for eqn in jaxpr.eqns:
        for value in eqn.params.values():
            for inner in value if isinstance(value, tuple | list) else (value,):
                if isinstance(inner, ClosedJaxpr | Jaxpr):
                    yield from _programs(inner)


def _as_numbers(array: Any) -> np.ndarray:
    """The numbers of an array that a program holds; of one that is in part on other machines, its identity."""
    if jnp.issubdtype(array.dtype, jax.dtypes.extended):
        array = jax.random.key_data(array)
    return np.asarray(array if getattr(array, "is_fully_addressable", True) else id(array))


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
