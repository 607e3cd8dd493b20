"""journal.jsonl: every finished evaluation, on the disk before anything is made of it."""

from pathlib import Path
from typing import Any, NamedTuple

from gradless.asktell import Ticket
from gradless.command.program import Outcome
from gradless.records import DamagedError, Metrics, write_atomic


class Entry(NamedTuple):
    """Names an evaluation: the ticket of the chain, and which of the draws that are averaged."""

    ticket: Ticket
    draw: int


class Journal:
    """Finished evaluations; what is in it is never made again. Losses are kept in memory until they are used."""

    def __init__(self, path: Path):
        if not path.exists():
            write_atomic(path, b"")
        self.path = path
        self._file = Metrics(path)
        self._losses: dict[int, dict[Entry, float]] = {}  # by the step that was accepted last
        self.evaluations = self.failures = self.wasted = 0
        for row in self._file.rows():
            self._note(row)

    def __contains__(self, entry: Entry) -> bool:
        return entry in self._losses.get(entry.ticket.after, {})

    def add(self, entry: Entry, outcome: Outcome) -> None:
        """Write one finished evaluation and return once it would survive a power cut."""
        row = {**entry.ticket._asdict(), "draw": entry.draw, "loss": outcome.loss}
        row |= {"seconds": round(outcome.seconds, 6), "tries": outcome.tries, "why": outcome.why}
        self._file.add([row])
        self._file.sync()
        self._note(row)

    def take(self, ticket: Ticket, num: int) -> list[float] | None:
        """Return the losses of all `num` draws of a ticket, once; None while some are not known."""
        kept = self._losses.get(ticket.after, {})
        entries = [Entry(ticket, draw) for draw in range(num)]
        if any(entry not in kept for entry in entries):
            return None
        return [kept.pop(entry) for entry in entries]

    def throw_away(self, after: int) -> None:
        """Forget the unused losses of a branch that was left."""
        self.wasted += len(self._losses.pop(after, {}))

    def _note(self, row: dict[str, Any]) -> None:
        try:
            ticket = Ticket(int(row["after"]), int(row["step"]), str(row["kind"]))
            entry, loss, why = Entry(ticket, int(row["draw"])), float(row["loss"]), row["why"]
        except (KeyError, TypeError, ValueError):
            raise DamagedError(f"{self.path} has a line that is not of this run: {str(row)[:80]}") from None
        self._losses.setdefault(ticket.after, {})[entry] = loss
        self.evaluations += 1
        self.failures += bool(why)
