"""How the programs of a run are compiled."""

from collections.abc import Callable
from functools import cache, partial
from threading import Lock
from typing import Any

import jax
import jax.numpy as jnp

# XLA's products on a CPU read bytes as they lie in memory only if they may be merged with what makes floating-point
# numbers of them. Products of floating-point numbers are left as they are: some are slower in that way.
FOR_BYTES = {"xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_DOT,LIBRARY_FUSION_TYPE_REDUCE"}
MAX_PROGRAMS = 16  # that are kept compiled: each holds its loss, and the arrays that this has captured


class Compiled:
    """A function of a program and arrays, compiled for each program as its data ask for; those used last are kept."""

    def __init__(self, function: Callable[..., Any], donate: tuple[str, ...] = ()) -> None:
        self.function = function  # for use within another compiled one: options are of the outermost
        self.donate = donate
        self.kept: dict[Any, Any] = {}  # the one used last is the last
        self.lock = Lock()  # chains are threads

    def __call__(self, program: Any, *args: Any) -> Any:
        """Call the function, compiled."""
        return self._for(program)(*args)

    def lower(self, program: Any, *args: Any) -> Any:
        """Return what `jax.jit(...).lower` returns."""
        return self._for(program).lower(*args)

    def _for(self, program: Any) -> Any:
        with self.lock:
            jitted = self.kept.pop(program, None) or self._jitted(program)
            self.kept[program] = jitted
            while len(self.kept) > MAX_PROGRAMS:
                del self.kept[next(iter(self.kept))]
        return jitted

    def _jitted(self, program: Any) -> Any:
        options = FOR_BYTES if program.objective.reads_bytes else None
        # Not as a static argument: JAX would hold it, its loss and what that has captured, for ever.
        of_program = partial(self.function, program)
        return jax.jit(of_program, donate_argnames=self.donate or None, compiler_options=options)


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
