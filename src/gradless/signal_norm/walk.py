"""Evaluate a traced loss and, on the way, find every product with a weight.

Paper: Sec. III B, Eqs. (11) and (17): a product of weights and neuron outputs is a pre-activation.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var

from gradless.jaxprs import CALLS, ELEMENTWISE, Array, bind, inner_jaxpr, literal_array, opened, shape_of
from gradless.signal_norm.links import SAME_ELEMENTS, SLICES, Link, elementwise_link, read_link
from gradless.signal_norm.loops import LOOPS, Found
from gradless.signal_norm.uses import Use, add_up, conv_link, conv_use, dot_link, dot_use
from gradless.signal_norm.values import Joined, PreActivation, Sink, Track, Value

SUMS = {"add", "add_any", "sub"}
DOT_LIKE = ("dot", "matmul", "ragged", "linear_solve", "triangular_solve", "tridiagonal_solve")
WITHOUT_A_PRODUCT = {"debug_callback", "debug_print"}


def is_readable(name: str) -> bool:
    """True for JAX's own operations that hold no hidden product: reductions, sorts, comparisons and their like."""
    if any(word in name for word in DOT_LIKE):
        return False
    public = name.replace("-", "_") + "_p"
    return hasattr(lax, public) or hasattr(lax.linalg, public) or name in WITHOUT_A_PRODUCT | SAME_ELEMENTS | SUMS


class Walk:
    """One level of the program: the loss itself, a loop body or a branch."""

    def __init__(self, terms: Iterator[Array] | None = None, is_data_only: bool = False) -> None:
        self.terms, self.is_data_only = terms, is_data_only
        self.uses: list[Use] = []
        self.data_uses: list[Use] = []

    def finish(self) -> None:
        """Hand every sum of squares to the weights it belongs to."""
        add_up(self.uses)
        for use in self.uses:
            for sink, links in use.targets:
                sink.collect(use.total(), None, links)

    def run(self, jaxpr: Jaxpr, consts: Sequence[Value], args: Sequence[Value]) -> list[Value]:
        """Evaluate a program, equation by equation."""
        env: dict[Var, Value] = dict(zip(jaxpr.invars, args, strict=True))
        env.update(zip(jaxpr.constvars, consts, strict=True))
        readers, slicers = count_readers(jaxpr)

        def read(atom: Any, is_slicing: bool = False) -> Value:
            if isinstance(atom, Literal):
                return Value(literal_array(atom))
            value = env[atom]
            is_alone = readers[atom] == 1 or (is_slicing and readers[atom] == slicers[atom])
            return value if value.pre is None or is_alone else value._replace(pre=None)

        for eqn in jaxpr.eqns:
            inputs = [read(atom, eqn.primitive.name in SLICES) for atom in eqn.invars]
            env.update(zip(eqn.outvars, self.step(eqn, inputs), strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def step(self, eqn: JaxprEqn, inputs: list[Value]) -> list[Value]:
        """Evaluate one equation and say what its outputs are."""
        name = eqn.primitive.name
        tracked = any(value.tracks for value in inputs)
        if tracked or any(value.pre for value in inputs):
            if (inner := inner_jaxpr(eqn)) is not None:
                jaxpr, consts = opened(inner)
                return self.run(jaxpr, [Value(const) for const in consts], inputs)
            if tracked and name in LOOPS and not self.has_unknown(inputs):
                return LOOPS[name](eqn, [value.settled() for value in inputs], walk_body)
        outputs = self.evaluate(eqn, inputs)
        if name == "dot_general" or name == "conv_general_dilated":
            inputs = without_copies(inputs)
            # What a weight makes of numbers, be it of a grid that the loss closes over, is what neurons receive.
            is_signal = any(value.of_params for value in inputs) and not all(value.tracks for value in inputs)
            of_data = outputs[0].of_data or is_signal
            return [outputs[0]._replace(pre=self.product(eqn, inputs), of_data=of_data)]
        if not tracked and not any(value.pre for value in inputs):
            return outputs
        if tracked:
            refuse_opaque(eqn, inputs)
        outputs = [out._replace(tracks=self.tracks(eqn, inputs, i)) for i, out in enumerate(outputs)]
        return [out._replace(pre=self.pre(eqn, inputs, i)) for i, out in enumerate(outputs)]

    def has_unknown(self, inputs: list[Value]) -> bool:
        return any(value.array is None for value in inputs)

    def evaluate(self, eqn: JaxprEqn, inputs: list[Value]) -> list[Value]:
        """The outputs of one equation, and what they depend on."""
        of_params, of_data = any(v.of_params for v in inputs), any(v.of_data for v in inputs)
        unknown = self.has_unknown(inputs) or (self.is_data_only and not eqn.outvars)
        arrays = [None] * len(eqn.outvars) if unknown else bind(eqn, [v.array for v in inputs])
        return [Value(array, of_params, of_data) for array in arrays]

    def product(self, eqn: JaxprEqn, inputs: list[Value]) -> PreActivation | None:
        """Note the use of a weight in a dot product or a convolution. Paper: Eq. (11)."""
        is_dot = eqn.primitive.name == "dot_general"
        weights = [s for s in ((0, 1) if is_dot else (1,)) if inputs[s].tracks]
        shared = {leaf for track in inputs[0].tracks for leaf in track.sink.leaves}
        if any(leaf in shared for track in inputs[1].tracks for leaf in track.sink.leaves):
            return None  # a norm or a quadratic form of one weight feeds no neuron
        if not is_dot and inputs[0].tracks and inputs[1].of_data:
            raise unreadable(inputs[:1], "a convolution as its image, with data as the kernel")
        if weights and not is_dot and eqn.params["batch_group_count"] > 1:
            raise unreadable(inputs, "a convolution with batch_group_count > 1")
        uses = [use for side in weights if (use := self.note(eqn, side, inputs)) is not None]
        if len(uses) != 1 or self.is_data_only:
            return None
        return PreActivation(uses[0].own, ((uses[0], ()),))

    def note(self, eqn: JaxprEqn, side: int, inputs: list[Value]) -> Use | None:
        """Record that the operand on `side` weighs the other one; sums over data alone may be known already."""
        is_dot, other = eqn.primitive.name == "dot_general", inputs[1 - side]
        shape = shape_of(eqn.outvars[0])
        if not other.of_params and self.terms is not None:
            use = Use(shape, 1.0, own=next(self.terms))
        elif other.array is None:
            return None
        else:
            use = dot_use(eqn, side, other.array) if is_dot else conv_use(eqn, other.array)
        if not other.of_params:
            self.data_uses.append(use)
        link = dot_link(eqn, side) if is_dot else conv_link(eqn)
        use.targets = [(track.sink, (*track.links, link)) for track in inputs[side].tracks]
        self.uses.append(use)
        return use

    def tracks(self, eqn: JaxprEqn, inputs: list[Value], output: int) -> tuple[Track, ...]:
        """The weights that an output still is, after a layout operation or an elementwise one that no data enters."""
        name, found = eqn.primitive.name, []
        if any(value.of_data for value in inputs) and name not in SAME_ELEMENTS:
            return ()  # read by a data-dependent index, scaled by an activation: no longer a weight
        for i, value in enumerate(inputs):
            link = self.link(eqn, inputs, i, output) if value.tracks else None
            found += [track.through(link) for track in value.tracks if link is not None]
        originals = [track for track in found if not track.is_copied()]
        is_combined = name in ELEMENTWISE and originals
        return tuple(originals if is_combined else found)  # w * g: the scale g is no weight

    def link(self, eqn: JaxprEqn, inputs: list[Value], i: int, output: int) -> Link | None:
        if eqn.primitive.name in ELEMENTWISE:
            return elementwise_link(eqn, i)
        return read_link(eqn, i, output, [value.array for value in inputs])

    def pre(self, eqn: JaxprEqn, inputs: list[Value], output: int) -> PreActivation | None:
        """The pre-activation that an output still is: sums join, layout operations pass it on."""
        name = eqn.primitive.name
        if self.is_data_only or not any(value.pre for value in inputs):
            return None
        if name in SAME_ELEMENTS:
            return inputs[output].pre
        if name in SUMS:
            summands = [pre for i, v in enumerate(inputs) if (pre := v.passed(elementwise_link(eqn, i))) is not None]
            return summands[0].join(summands[1]) if len(summands) == 2 else summands[0]
        if name in ELEMENTWISE:
            return None
        i = next(i for i, value in enumerate(inputs) if value.pre is not None)
        return inputs[i].passed(read_link(eqn, i, output, [value.array for value in inputs]))


def without_copies(inputs: list[Value]) -> list[Value]:
    """Two factors of a product: a parameter copied along the samples, such as a first state, is no weight."""
    are_copied = [all(track.is_copied() for track in value.tracks) for value in inputs]
    has_weight = any(value.tracks and not copied for value, copied in zip(inputs, are_copied, strict=True))
    return [
        value._replace(tracks=()) if copied and has_weight else value
        for value, copied in zip(inputs, are_copied, strict=True)
    ]


def walk_body(body: ClosedJaxpr, arrays: Sequence[Array], outer: Sequence[Value]) -> tuple[list[Array], Found]:
    """Evaluate a body once; `outer` says what each input is outside of it."""
    level, sinks, joins, args = Walk(), [], [], []
    for array, value in zip(arrays, outer, strict=True):
        leaves = tuple(leaf for track in value.tracks for leaf in track.sink.leaves)
        sink, join = Sink(leaves, jnp.shape(array)), Joined()
        pre = None if value.pre is None else PreActivation(value.pre.own, ((join, ()),))
        args.append(value._replace(array=array, tracks=(Track(sink, ()),) if leaves else (), pre=pre))
        sinks.append(sink)
        joins.append(join)
    outs = level.run(body.jaxpr, [Value(const) for const in body.consts], args)
    level.finish()
    found = [(sink.result(), join.result()) for sink, join in zip(sinks, joins, strict=True)]
    return [out.array for out in outs], jax.tree.map(jnp.asarray, found)


def count_readers(jaxpr: Jaxpr) -> tuple[Counter[Var], Counter[Var]]:
    """How often each variable is read, and how often by a slice."""
    readers: Counter[Var] = Counter(v for v in jaxpr.outvars if isinstance(v, Var))
    slicers: Counter[Var] = Counter()
    for eqn in jaxpr.eqns:
        atoms = [v for v in eqn.invars if isinstance(v, Var)]
        readers.update(atoms)
        if eqn.primitive.name in SLICES:
            slicers.update(atoms)
    return readers, slicers


def refuse_opaque(eqn: JaxprEqn, inputs: list[Value]) -> None:
    """Raise where a weight enters something that may multiply it by neuron outputs out of sight."""
    name = eqn.primitive.name
    if name in LOOPS or name in CALLS or is_readable(name):
        return
    raise unreadable(inputs, f"the operation `{name}`")


def unreadable(inputs: list[Value], what: str) -> ValueError:
    """The error that names the leaf, what it met and the way out."""
    leaves = sorted({leaf for value in inputs for track in value.tracks for leaf in track.sink.leaves})
    listed = " and ".join(f'"{leaf}"' for leaf in leaves)
    by_hand = ", ".join(f'"{leaf}": value' for leaf in leaves)
    return ValueError(
        f"signal norm cannot read how parameter {listed} is used: it enters {what}. "
        f"Set its lambda by hand: signal_norm={{{by_hand}}}"
    )
