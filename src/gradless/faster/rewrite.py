"""Evaluate a traced loss and, on the way, compute what has a faster form in that form."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Jaxpr, JaxprEqn, Literal, Var

from gradless.faster.byte_images import bytes_of, is_made_of_bytes, is_product_of_bytes, product_of_bytes
from gradless.faster.kept import kept, uses_of, work_of
from gradless.faster.kernel_gradients import gradient_by_pixels, is_kernel_gradient
from gradless.faster.laid import Laid
from gradless.faster.long_sums import is_long_sum, summed_in_parts
from gradless.faster.narrow_layers import is_narrow, kept_first, narrow_layer
from gradless.faster.small_images import convolved, is_small_image
from gradless.jaxprs import Array, bind, inner_jaxpr, literal_array, opened


def faster(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function`, a pure function of pytrees of arrays, in the faster form: the same up to rounding.

    The derivative rules that a function brings along (`jax.custom_jvp`) are lost on the way: take the faster form of a
    gradient, never the gradient of a faster form.
    """

    def evaluated(*args: Any) -> Any:
        program, shape = jax.make_jaxpr(function, return_shape=True)(*args)
        if not has_faster_form(program.jaxpr):
            return function(*args)
        # Between the barriers the pass is compiled alike in every program: elsewhere a product and a sum that follows
        # may be contracted into one operation or not, and a replay would not find the same loss.
        leaves = jax.lax.optimization_barrier(jax.tree.leaves(args))
        run = Running(next((leaf for leaf in leaves if leaf.size and jnp.issubdtype(leaf.dtype, jnp.floating)), None))
        outs = run(program.jaxpr, [Laid(const) for const in program.consts], [Laid(leaf) for leaf in leaves])
        outs = jax.lax.optimization_barrier([out.usual for out in outs])
        return jax.tree.unflatten(jax.tree.structure(shape), outs)

    return evaluated


def multiplies_bytes(function: Callable[..., Any], *args: Any) -> bool:
    """Return whether the faster form of a function has a product that takes an array of bytes as it is."""
    eqns = jax.make_jaxpr(faster(function))(*args).jaxpr.eqns
    made_of_bytes = {eqn.outvars[0] for eqn in eqns if is_made_of_bytes(eqn)}
    products = [eqn for eqn in eqns if eqn.primitive.name == "dot_general"]
    return any(eqn.invars[0] in made_of_bytes for eqn in products if isinstance(eqn.invars[0], Var))


def has_faster_form(jaxpr: Jaxpr) -> bool:
    """Return whether a program holds something that has a faster form."""
    inner = (inner_jaxpr(eqn) for eqn in jaxpr.eqns)
    forms = (is_narrow, is_small_image, is_kernel_gradient, is_long_sum, is_made_of_bytes)
    is_here = any(is_form(eqn) for is_form in forms for eqn in jaxpr.eqns)
    return is_here or any(has_faster_form(opened(one)[0]) for one in inner if one is not None)


@dataclass(frozen=True)
class Running:
    """The evaluation of a program, equation by equation."""

    witness: Array | None  # an array that the compiler does not know

    def __call__(self, jaxpr: Jaxpr, consts: Sequence[Laid], args: Sequence[Laid]) -> list[Laid]:
        """Return the results of a program."""
        uses = uses_of(jaxpr)
        env: dict[Var, Laid] = {}

        def read(atom: Any) -> Laid:
            return Laid(literal_array(atom)) if isinstance(atom, Literal) else env[atom]

        def write(places: Sequence[Var], arrays: Sequence[Laid]) -> None:
            env.update((var, kept(one, uses[var], self.witness)) for var, one in zip(places, arrays, strict=True))

        write((*jaxpr.constvars, *jaxpr.invars), (*consts, *args))
        for eqn in jaxpr.eqns:
            write(eqn.outvars, self._step(eqn, [read(atom) for atom in eqn.invars]))
        return [read(atom) for atom in jaxpr.outvars]

    def _step(self, eqn: JaxprEqn, inputs: list[Laid]) -> list[Laid]:
        is_any_first = any(one.is_first for one in inputs)
        if (inner := inner_jaxpr(eqn)) is not None:
            jaxpr, consts = opened(inner)
            if is_any_first or any(one.made_of for one in inputs) or has_faster_form(jaxpr):
                return self(jaxpr, [Laid(const) for const in consts], inputs)
        return [one._replace(work=work_of(eqn, inputs)) for one in _operation(eqn, inputs)]


def _operation(eqn: JaxprEqn, inputs: list[Laid]) -> list[Laid]:
    is_any_first = any(one.is_first for one in inputs)
    if is_narrow(eqn):
        return [narrow_layer(eqn, *inputs)]
    if is_kernel_gradient(eqn):
        return [Laid(gradient_by_pixels(eqn, *(one.usual for one in inputs)))]
    if is_small_image(eqn):
        return [Laid(convolved(eqn, *(one.usual for one in inputs)))]
    if is_long_sum(eqn):
        return [Laid(summed_in_parts(eqn, *(one.usual for one in inputs)))]
    if is_product_of_bytes(eqn, inputs):
        return [Laid(product_of_bytes(eqn, *inputs))]
    if is_any_first and (outs := kept_first(eqn, inputs)) is not None:
        return outs
    outs = [Laid(out) for out in bind(eqn, [one.usual for one in inputs])]
    if inputs and len(outs) == 1 and not is_any_first:
        outs = [outs[0]._replace(made_of=bytes_of(eqn, inputs))]
    return outs
