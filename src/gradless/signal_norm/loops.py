"""Walk through scan, while and cond: sums of squares are added up over the steps that were taken.

Each body is a level of its own. Its weights collect in sinks of the body, whose totals leave the loop beside its own
results and go on to the sinks outside.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var, jaxpr_as_fun

from gradless.jaxprs import Array, inner_jaxpr, opened
from gradless.signal_norm.values import PreActivation, Value

Found = list[tuple[Any, Any]]  # per input of the body: (sum, count) of a weight, extra of a pre-activation; or None
WalkBody = Callable[[ClosedJaxpr, Sequence[Array], Sequence[Value]], tuple[list[Array], Found]]


def hand_out(found: Found, outer: Sequence[Value], steps: Array | int) -> None:
    """Give what a body found to the sinks and pre-activations outside."""
    for (weight, extra), value in zip(found, outer, strict=True):
        if weight is not None:
            for track in value.tracks:
                track.sink.collect(weight[0], weight[1], track.links)
        if extra is not None and value.pre is not None:
            for member, links in value.pre.members:
                member.gain(extra / steps, links)


def outputs_of(arrays: Sequence[Array], inputs: Sequence[Value]) -> list[Value]:
    """The results of a loop as values: they depend on whatever entered it."""
    of_params, of_data = any(v.of_params for v in inputs), any(v.of_data for v in inputs)
    return [Value(array, of_params, of_data) for array in arrays]


def carried(jaxpr: Jaxpr, inputs: Sequence[Value], first: int, num_carry: int) -> list[Value]:
    """The inputs of a body as they are in every step: a carry that changes is no weight, and may come to hold data."""
    marks = [value.of_data for value in inputs]
    for _ in range(num_carry + 1):
        outs = reached(jaxpr, marks)[:num_carry]
        marks[first : first + num_carry] = [a or b for a, b in zip(marks[first : first + num_carry], outs, strict=True)]
    values = [value._replace(of_data=mark) for value, mark in zip(inputs, marks, strict=True)]
    for i in range(num_carry):
        var: Var = jaxpr.invars[first + i]
        values[first + i] = values[first + i]._replace(pre=None)
        if jaxpr.outvars[i] is not var:
            values[first + i] = values[first + i]._replace(tracks=())
    return values


def zeros_like(shapes: Any) -> Any:
    return jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)


def walk_scan(eqn: JaxprEqn, inputs: list[Value], walk_body: WalkBody) -> list[Value]:
    """A scan: weights it holds fixed add up over the steps, weights it scans over get one sum per step."""
    params, body = eqn.params, eqn.params["jaxpr"]
    num_consts, num_carry = params["num_consts"], params["num_carry"]
    num_fixed = num_consts + num_carry
    outer = carried(body.jaxpr, inputs, num_consts, num_carry)
    outer[num_fixed:] = [scanned(value) for value in outer[num_fixed:]]
    arrays = [value.array for value in inputs]
    consts, start, xs = arrays[:num_consts], arrays[num_consts:num_fixed], arrays[num_fixed:]

    def step(carry: list[Array], x: list[Array]) -> tuple[list[Array], list[Array], Found, Found]:
        outs, found = walk_body(body, [*consts, *carry, *x], outer)
        return outs[:num_carry], outs[num_carry:], found[:num_fixed], found[num_fixed:]

    first = [jax.ShapeDtypeStruct(x.shape[1:], x.dtype) for x in xs]
    totals = zeros_like(jax.eval_shape(step, start, first)[2])

    def add_step(state: Any, x: list[Array]) -> Any:
        carry, ys, fixed, per_step = step(state[0], x)
        return (carry, jax.tree.map(jnp.add, state[1], fixed)), (ys, per_step)

    (carry, fixed), (ys, per_step) = lax.scan(
        add_step, (start, totals), xs, params["length"], params["reverse"], params["unroll"]
    )
    hand_out(fixed, inputs[:num_fixed], max(1, params["length"]))
    hand_out(per_step, inputs[num_fixed:], 1)
    return outputs_of([*carry, *ys], inputs)


def scanned(value: Value) -> Value:
    """What one step sees of a scanned input: a pre-activation goes on if its sum is the same for all steps."""
    if value.pre is None:
        return value
    own = value.pre.own()
    return value._replace(pre=None if own.shape[0] > 1 else PreActivation(lambda: own[0], value.pre.members))


def walk_while(eqn: JaxprEqn, inputs: list[Value], walk_body: WalkBody) -> list[Value]:
    """A while loop: sums and counts of the steps that were taken."""
    params, body = eqn.params, eqn.params["body_jaxpr"]
    num_test, num_consts = params["cond_nconsts"], params["body_nconsts"]
    held = inputs[num_test:]
    outer = carried(body.jaxpr, held, num_consts, len(held) - num_consts)
    arrays = [value.array for value in inputs]
    test_consts, consts, start = arrays[:num_test], arrays[num_test : num_test + num_consts], arrays[num_test:]
    start = start[num_consts:]

    def step(carry: list[Array]) -> tuple[list[Array], Found]:
        return walk_body(body, [*consts, *carry], outer)

    def add_step(state: Any) -> Any:
        carry, found = step(state[0])
        return carry, jax.tree.map(jnp.add, state[1], found), state[2] + 1

    test: Callable[..., list[Array]] = jaxpr_as_fun(params["cond_jaxpr"])
    totals = zeros_like(jax.eval_shape(step, start)[1])
    carry, found, steps = lax.while_loop(
        lambda state: test(*test_consts, *state[0])[0], add_step, (start, totals, jnp.zeros((), jnp.int32))
    )
    hand_out(found, held, jnp.maximum(1, steps))
    return outputs_of(carry, inputs)


def walk_cond(eqn: JaxprEqn, inputs: list[Value], walk_body: WalkBody) -> list[Value]:
    """A cond or switch: only the branch that was taken counts."""
    index, operands = inputs[0], inputs[1:]
    arrays = [value.array for value in operands]

    def walked(body: ClosedJaxpr) -> Callable[..., tuple[list[Array], Found]]:
        return lambda *args: walk_body(body, args, operands)

    branches = [walked(body) for body in eqn.params["branches"]]
    shapes = [jax.eval_shape(branch, *arrays)[1] for branch in branches]
    common = [tuple(widest(options) for options in zip(*slot, strict=True)) for slot in zip(*shapes, strict=True)]

    def filled(branch: Callable[..., tuple[list[Array], Found]]) -> Callable[..., Any]:
        def run(*args: Array) -> Any:
            outs, found = branch(*args)
            return outs, [tuple(map(fill, pair, like)) for pair, like in zip(found, common, strict=True)]

        return run

    outs, found = lax.switch(index.array, [filled(branch) for branch in branches], *arrays)
    hand_out(found, operands, 1)
    return outputs_of(outs, inputs)


def widest(options: Sequence[Any]) -> Any:
    """The shapes that hold what any branch found: None, one array or (sum, count)."""
    present = [option for option in options if option is not None]
    if not present:
        return None
    return jax.tree.map(
        lambda *s: jax.ShapeDtypeStruct(jnp.broadcast_shapes(*(x.shape for x in s)), jnp.result_type(*s)), *present
    )


def fill(found: Any, like: Any) -> Any:
    """What a branch found in the common shape; zero if it found nothing."""
    if found is None:
        return None if like is None else zeros_like(like)
    return jax.tree.map(lambda x, s: jnp.broadcast_to(x, s.shape).astype(s.dtype), found, like)


LOOPS = {"scan": walk_scan, "while": walk_while, "cond": walk_cond}


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
