"""What the walk knows about each value of the program besides its array."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import jax.numpy as jnp
import numpy as np

from gradless.jaxprs import Array, Shape
from gradless.signal_norm.links import Link, Links, pull_back


class Sink:
    """Where the sums of squares of one weight collect: S and the number of uses, so that their ratio is the mean."""

    def __init__(self, leaves: tuple[str, ...], shape: Shape) -> None:
        self.leaves, self.shape = leaves, shape
        self.sums: list[Array] = []
        self.counts: list[Array] = []

    def collect(self, total: Array, count: Array | None, links: Links) -> None:
        """Take in a compact sum of squares found at the end of `links`; `count` None is one use of it."""
        if count is None and not all(link.is_whole for link in links):
            count = jnp.ones((1,) * total.ndim, total.dtype)
        self.sums.append(pull_back(links, total))
        whole = np.ones((1,) * len(self.shape), np.float32)
        self.counts.append(whole if count is None else pull_back(links, count))

    def result(self) -> tuple[Array, Array] | None:
        """(sum, count), both compact; None when the weight was not used."""
        if not self.sums:
            return None
        return sum(self.sums[1:], start=self.sums[0]), sum(self.counts[1:], start=self.counts[0])


class Joiner(Protocol):
    """A product, or an input of a loop body, whose pre-activation others may join."""

    def gain(self, amount: Array, links: Links) -> None: ...


class Joined:
    """A pre-activation that enters a loop body or a branch: gathers what is added to it there."""

    def __init__(self) -> None:
        self.extras: list[Array] = []

    def gain(self, amount: Array, links: Links) -> None:
        self.extras.append(pull_back(links, amount))

    def result(self) -> Array | None:
        return sum(self.extras[1:], start=self.extras[0]) if self.extras else None


class Track(NamedTuple):
    """This value is a weight, rearranged by `links` since it left its sink."""

    sink: Sink
    links: Links

    def through(self, link: Link) -> "Track":
        return Track(self.sink, (*self.links, link))

    def is_copied(self) -> bool:
        return any(link.is_copying for link in self.links)


class PreActivation(NamedTuple):
    """This value is a sum of products with weights, read nowhere else yet."""

    own: Callable[[], Array]  # its sum of squares, compact
    members: tuple[tuple[Joiner, Links], ...]

    def through(self, link: Link) -> "PreActivation | None":
        push = link.push
        if push is None:
            return None
        return PreActivation(lambda: push(self.own()), tuple((m, (*links, link)) for m, links in self.members))

    def join(self, other: "PreActivation") -> "PreActivation":
        """Two sums of products that are added feed one neuron: each learns of the other's inputs."""
        mine, theirs = self.own(), other.own()
        for member, links in self.members:
            member.gain(theirs, links)
        for member, links in other.members:
            member.gain(mine, links)
        return PreActivation(lambda: mine + theirs, self.members + other.members)


class Value(NamedTuple):
    """An array of the traced program; `array` is None where only the data is known."""

    array: Array
    of_params: bool = False  # depends on a leaf of the parameters
    of_data: bool = False  # depends on the batch, or is what neurons receive
    tracks: tuple[Track, ...] = ()
    pre: PreActivation | None = None

    def passed(self, link: Link | None) -> PreActivation | None:
        """The pre-activation that is left of this value after a link."""
        return None if self.pre is None or link is None else self.pre.through(link)

    def settled(self) -> "Value":
        """The same value with its sum of squares computed here, before a loop body is entered."""
        if self.pre is None:
            return self
        own = self.pre.own()
        return self._replace(pre=PreActivation(lambda: own, self.pre.members))
