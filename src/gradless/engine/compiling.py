"""How the programs of a run are compiled."""

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp

# XLA's products on a CPU read bytes as they lie in memory only if they may be merged with what makes floating-point
# numbers of them. Products of floating-point numbers are left as they are: some are slower in that way.
FOR_BYTES = {"xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_DOT,LIBRARY_FUSION_TYPE_REDUCE"}


class Compiled:
    """A function of a program and arrays, compiled for each program as its data ask for."""

    def __init__(self, function: Callable[..., Any], donate: tuple[str, ...] = ()) -> None:
        def jitted(options: dict[str, str] | None) -> Any:
            return jax.jit(
                function, static_argnames=("program",), donate_argnames=donate or None, compiler_options=options
            )

        self.function = function  # to be part of another one: options belong to a whole
        self.usual, self.for_bytes = jitted(None), jitted(FOR_BYTES)

    def __call__(self, program: Any, *args: Any) -> Any:
        """Call the function, compiled."""
        return self._for(program)(program, *args)

    def lower(self, program: Any, *args: Any) -> Any:
        """Return what `jax.jit(...).lower` returns."""
        return self._for(program).lower(program, *args)

    def _for(self, program: Any) -> Any:
        return self.for_bytes if program.objective.reads_bytes else self.usual


@cache
def can_read_bytes() -> bool:
    """Return whether this machine's compiler merges bytes into products: it is a CPU's, and knows the option."""
    if jax.default_backend() != "cpu":
        return False
    try:
        jax.jit(lambda number: number, compiler_options=FOR_BYTES).lower(jnp.zeros(())).compile()
    except Exception:  # JAX has no class of its own for an option that its compiler does not know
        return False
    return True
