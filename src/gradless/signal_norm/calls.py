"""Programs inside programs: calls that are walked as if their contents stood in place of them."""

from collections.abc import Sequence
from typing import Any

from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal

from gradless.signal_norm.layout import Array

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


def reached(jaxpr: Jaxpr, marked: Sequence[bool]) -> list[bool]:
    """Which outputs of a program depend on its marked inputs."""
    seen = {var for var, mark in zip(jaxpr.invars, marked, strict=True) if mark}

    def is_seen(atom: Any) -> bool:
        return not isinstance(atom, Literal) and atom in seen

    for eqn in jaxpr.eqns:
        flags = [is_seen(atom) for atom in eqn.invars]
        inner = inner_jaxpr(eqn)
        outs = [any(flags)] * len(eqn.outvars) if inner is None else reached(opened(inner)[0], flags)
        seen.update(var for var, mark in zip(eqn.outvars, outs, strict=True) if mark)
    return [is_seen(atom) for atom in jaxpr.outvars]
