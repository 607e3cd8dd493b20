"""`gl.AskTell`: a chain that asks for losses and is told them."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gradless.asktell import file
from gradless.asktell.foresee import Branch
from gradless.asktell.given import as_bounds, as_loss, as_point, check_algorithm
from gradless.engine.plan import check_whole
from gradless.engine.train import chain_key
from gradless.kernels import AMC, algorithm_from_json
from gradless.kernels.bounded import Bounded
from gradless.records import DamagedError
from gradless.types import Algorithm

KINDS = START, MOVE, AGAIN = "start", "move", "again"  # saved files and {seed} hold their places: keep the order
COUNTS = ("after", "accepted", "nonfinite", "evaluations", "wasted")
MOST_ROWS = 1 << 16


class Ticket(NamedTuple):
    """Names one evaluation for good, in every process: no other of the chain has the same."""

    after: int  # the step that was accepted last, -1 before there is one
    step: int  # the step that needs the loss
    kind: str  # "start" (x0), "move" (a proposal) or "again" (the present point once more)


class Point(NamedTuple):
    """A point and its loss."""

    x: np.ndarray
    loss: float


class AskTell:
    """A Metropolis chain whose loss is evaluated outside, in whatever process, language or laboratory.

    `x = opt.ask()`, then `opt.tell(loss)`; the first x is x0. `opt.ask(k)` returns the points of the next k evaluations
    on the assumption that every step is rejected, so that k workers have something to do at once. `opt.tell(losses)`
    answers all of them; `opt.tell(loss, ticket)` answers one, in any order, by its ticket in `opt.tickets`. Losses are
    used in the order of the steps. After an accepted step the later proposals are thrown away and their losses wasted:
    the chain is the same for every k, and the same as that of `gl.train` on the same losses.

    A loss of None, NaN or infinity is a rejection. Asking again before telling returns the same points.

    x0: an array of any shape; whole numbers and Python floats are taken in float64.
    algorithm: `gl.amc()` (default) or `gl.metropolis()`, without signal norm, which needs to see into the loss.
    seed: of all random numbers.
    bounds: (low, high), a scipy Bounds object, or a pair for each number; proposals are reflected at them.
    reevaluate_every: for noisy losses; every so many steps the present point is asked for once more and its loss
        replaced, so that a value that was low by luck does not stop the chain.
    """

    def __init__(
        self,
        x0: Any,
        algorithm: Algorithm | None = None,
        seed: int = 0,
        *,
        bounds: Any = None,
        reevaluate_every: int | None = None,
    ):
        algorithm = AMC() if algorithm is None else algorithm
        traced = check_algorithm(algorithm)
        check_whole("seed", seed, least=0, most=2**63 - 1)
        if reevaluate_every is not None:
            check_whole("reevaluate_every", reevaluate_every, least=1, most=2**31 - 1)
        self.x = _fixed(as_point(x0))
        self.algorithm, self.seed, self.reevaluate_every = algorithm, seed, reevaluate_every
        self.bounds = as_bounds(bounds, self.x)
        kernel: Any = algorithm if self.bounds is None else Bounded(algorithm, *(one.ravel() for one in self.bounds))
        self._branch = Branch(kernel, chain_key(seed, 0), self.x.ravel(), traced)
        self.loss = math.nan  # U(x), once that of x0 is told
        self.best = Point(self.x, math.nan)
        self.after = -1  # the step that was accepted last
        self.accepted = self.nonfinite = 0  # steps; and told losses that were no numbers
        self.evaluations = self.wasted = 0  # told losses; and those of proposals that were thrown away
        self.tickets: list[Ticket] = []  # of the points of the last ask
        self._is_one = True  # the last ask was for one point, not for rows
        self._open: set[Ticket] = set()  # asked for, neither answered nor thrown away
        self._told: dict[Ticket, float] = {}  # answered before their turn

    def __repr__(self) -> str:
        numbers = f"loss {self.loss:.6g}, best {self.best.loss:.6g}, sigma {self.sigma:.3g}"
        return f"AskTell(step {self.step:,}, {numbers})"

    @property
    def has_begun(self) -> bool:
        """Whether the loss of x0 is known."""
        return not math.isnan(self.loss)

    @property
    def step(self) -> int:
        """How many steps have been made."""
        return self._branch.t

    @property
    def sigma(self) -> float:
        """The present move scale."""
        return self._branch.sigma

    @property
    def is_frozen(self) -> bool:
        """Whether moves have fallen below what floating point can resolve."""
        return self._branch.is_frozen

    def ask(self, k: int | None = None) -> np.ndarray:
        """Return the point whose loss is needed next; with k the first k of the reject branch, one per row.

        Before the loss of x0 is known nothing else can be asked for, and `ask(k)` has that one row.
        """
        if k is not None:
            check_whole("k", k, least=1, most=MOST_ROWS)
        self.tickets, self._is_one = self._ahead(k or 1), k is None
        self._open.update(self.tickets)
        points = [self._point(ticket) for ticket in self.tickets]
        return points[0].copy() if k is None else np.stack(points)

    def tell(self, loss: Any, ticket: Sequence[Any] | None = None) -> None:
        """Give the loss of the last ask, the losses of all its rows, or the loss of one ticket."""
        if ticket is not None:
            return self._take({_as_ticket(ticket): as_loss(loss)})
        answered = [one for one in self.tickets if one not in self._open]
        if len(answered) == len(self.tickets):
            raise ValueError("tell must follow ask: nothing is asked for")
        if answered:
            raise ValueError("losses must answer a whole ask: ask again, or give each loss with its ticket")
        losses = [loss] if self._is_one else list(np.atleast_1d(np.asarray(loss, object)))
        if len(losses) != len(self.tickets):
            raise ValueError(f"losses must be as many as the points asked for, {len(self.tickets)}, got {len(losses)}")
        return self._take({one: as_loss(value) for one, value in zip(self.tickets, losses, strict=True)})

    def save(self, path: str | Path) -> None:
        """Write the chain to a file, whole or not at all; points asked for before can still be told."""
        tensors, meta = self._contents()
        file.write(Path(path), tensors, {**meta, "algorithm": file.saveable(self.algorithm)})

    @classmethod
    def load(cls, path: str | Path) -> "AskTell":
        """Return the chain that `save` wrote, in this or another process."""
        tensors, meta = file.read(Path(path))
        try:
            return cls._restored(algorithm_from_json(meta["algorithm"]), tensors, meta)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise DamagedError(f"{path} cannot be read: what it holds is no chain ({error!r})") from None

    def __reduce__(self) -> Any:
        """Let copies and pickles be made of what `save` writes: JAX would bring its arrays back in float32."""
        return self._restored, (self.algorithm, *self._contents())

    def _contents(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return all that is known of the chain but its algorithm, as arrays and as plain values."""
        tensors = file.named(self._branch.state) | {"best": self.best.x}
        if self.bounds is not None:
            tensors |= {"low": self.bounds[0], "high": self.bounds[1]}
        meta = {
            "seed": int(self.seed),
            "reevaluate_every": self.reevaluate_every,
            "loss": self.loss,
            "best_loss": self.best.loss,
            "counts": {name: getattr(self, name) for name in COUNTS},
            "is_one": self._is_one,
        }
        told = sorted(self._told)  # there may be tens of thousands of tickets: they are tensors too
        tensors |= {"tickets": _rows(self.tickets), "open": _rows(sorted(self._open)), "told": _rows(told)}
        tensors["told_losses"] = np.array([self._told[ticket] for ticket in told], np.float64)
        return tensors, meta

    @classmethod
    def _restored(cls, algorithm: Algorithm, tensors: dict[str, np.ndarray], meta: dict[str, Any]) -> "AskTell":
        bounds = (tensors["low"], tensors["high"]) if "low" in tensors else None
        best = tensors["best"]
        x = tensors["state.x"].reshape(best.shape)
        self = cls(x, algorithm, meta["seed"], bounds=bounds, reevaluate_every=meta["reevaluate_every"])
        self._branch.stand_at(file.restored(self._branch.root, tensors))
        self.loss = float(meta["loss"])
        self.best = Point(self.x if np.array_equal(best, x) else _fixed(best.copy()), float(meta["best_loss"]))
        for name in COUNTS:
            setattr(self, name, int(meta["counts"][name]))
        self.tickets, self._is_one = _tickets(tensors["tickets"]), bool(meta["is_one"])
        self._open = set(_tickets(tensors["open"]))
        self._told = dict(zip(_tickets(tensors["told"]), tensors["told_losses"].tolist(), strict=True))
        return self

    def _ahead(self, k: int) -> list[Ticket]:
        """Return the first k evaluations of the reject branch whose losses are not known."""
        if not self.has_begun:
            return [Ticket(-1, 0, START)]
        found: list[Ticket] = []
        step = self.step
        while len(found) < k:
            found += [ticket for ticket in self._needs(step) if ticket not in self._told]
            step += 1
        return found[:k]

    def _needs(self, step: int) -> list[Ticket]:
        is_due = self.reevaluate_every is not None and step > 0 and step % self.reevaluate_every == 0
        again = [Ticket(self.after, step, AGAIN)] if is_due else []
        return [*again, Ticket(self.after, step, MOVE)]

    def _point(self, ticket: Ticket) -> np.ndarray:
        return self._branch.proposal(ticket.step).reshape(self.x.shape) if ticket.kind == MOVE else self.x

    def _take(self, told: dict[Ticket, float]) -> None:
        for ticket in told:
            if ticket not in self._open and not -1 <= ticket.after < self.after:  # an older one was thrown away
                raise ValueError(f"a loss must answer what is asked for, got one for {tuple(ticket)}")
        if not self.has_begun:
            return self._begin(*told.values())
        self.evaluations += len(told)
        self.wasted += sum(ticket not in self._open for ticket in told)
        self._told |= {ticket: loss for ticket, loss in told.items() if ticket in self._open}
        self._open -= told.keys()
        self._settle()

    def _begin(self, loss: float) -> None:
        if not math.isfinite(loss):
            raise ValueError(f"the loss of the starting point must be finite, got {loss}")
        self.loss, self.best, self.evaluations = loss, Point(self.x, loss), 1
        self.tickets, self._open = [], set()

    def _settle(self) -> None:
        """Make every step whose losses are known, in order."""
        while self._told.keys() >= set(needs := self._needs(self.step)):
            *again, loss_new = (self._told.pop(ticket) for ticket in needs)
            if again and math.isfinite(again[0]):
                self._renew(again[0])
            step, x_new = self.step, self._branch.proposal(self.step)
            self.nonfinite += not math.isfinite(loss_new)
            if self._branch.decide(self.loss, loss_new):
                self._move(step, _fixed(x_new.reshape(self.x.shape).copy()), loss_new)

    def _renew(self, loss: float) -> None:
        self.loss = loss
        if self.best.x is self.x or loss <= self.best.loss:
            self.best = Point(self.x, loss)

    def _move(self, step: int, x: np.ndarray, loss: float) -> None:
        self.x, self.loss, self.after = x, loss, step
        self.accepted += 1
        if loss <= self.best.loss:
            self.best = Point(x, loss)
        self.wasted += len(self._told)
        self._told, self._open, self.tickets = {}, set(), []


def _rows(tickets: Sequence[Ticket]) -> np.ndarray:
    """Return tickets as numbers, one in each row."""
    return np.array([(after, step, KINDS.index(kind)) for after, step, kind in tickets], np.int64).reshape(-1, 3)


def _tickets(rows: np.ndarray) -> list[Ticket]:
    return [Ticket(after, step, KINDS[kind]) for after, step, kind in rows.tolist()]


def _fixed(x: np.ndarray) -> np.ndarray:
    """Return a point that nobody can write into: x and the best point are often one array."""
    x.flags.writeable = False
    return x


def _as_ticket(ticket: Sequence[Any]) -> Ticket:
    try:
        after, step, kind = ticket
        return Ticket(int(after), int(step), str(kind))
    except (TypeError, ValueError):
        raise ValueError(f"ticket must be one of opt.tickets, got {ticket!r}") from None
