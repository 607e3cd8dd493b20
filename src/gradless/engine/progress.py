"""What a person sees while a run goes on: one line of its present numbers, drawn again about twice a second."""

import contextlib
import math
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, TextIO

import numpy as np

from gradless.engine.devices.processes import is_first
from gradless.engine.plan import LARGEST
from gradless.engine.session import Listener, Session
from gradless.records import COLUMNS
from gradless.settings import check_switch

PLAIN_SECONDS = 5.0  # between lines where none can be drawn again


@contextlib.contextmanager
def watching(progress: bool | None) -> Iterator[list[Listener]]:
    """Give who shows a run that Python begins; with None there is one only where somebody would see it."""
    if progress is not None:
        check_switch("progress", progress)
    stream = sys.stdout if is_notebook() else sys.stderr  # a notebook marks what is on stderr as an error
    is_seen = stream is not None and (is_notebook() or stream.isatty())
    if progress is False or stream is None or not (progress or is_seen) or not is_first():
        yield []
    elif is_seen:
        line = OneLine(stream)
        try:
            line.steps_begin()
            yield [line]
        finally:
            line.wipe()
    else:
        yield [PlainLines(lambda words: write(stream, f"{words}\n"))]


def is_notebook() -> bool:
    """Return whether this process is the kernel of a notebook."""
    kernel = sys.modules.get("ipykernel.zmqshell")
    return kernel is not None and kernel.ZMQInteractiveShell.initialized()


class Recent:
    """Steps per second, and the share of them each chain accepted, over the last moments."""

    def __init__(self) -> None:
        self.moments: list[tuple[float, int, np.ndarray]] = []  # time, step, and what was accepted up to there

    def update(self, t: int, flags: np.ndarray) -> None:
        """Take note that step t is done."""
        self.moments = [*self.moments[-9:], (time.monotonic(), t, flags.sum(axis=1))]

    @property
    def pace(self) -> float:
        """Steps per second."""
        (before, t_before, _), (now, t, _) = self.moments[0], self.moments[-1]
        return (t - t_before) / (now - before) if now > before else 0.0

    def acceptance(self, chain: int) -> float:
        """Accepted steps of a chain, as a share; not a number before its first step."""
        steps = self.moments[-1][1] - self.moments[0][1]
        return sum(int(accepted[chain]) for _, _, accepted in self.moments[1:]) / steps if steps else math.nan


def describe(session: Session, recent: Recent) -> str:
    """Return the present numbers of a run in one line; of several chains the best."""
    losses = [float(chain.carry.state.loss) for chain in session.chains if chain.carry is not None]
    best = int(np.nanargmin(losses)) if np.isfinite(losses).any() else 0
    words = [f"U {losses[best]:.5g}"]
    words += [f"{name} {value:.4g}" for name, value in session.last_record(best).items() if name not in COLUMNS]
    chain = session.chains[best]
    if hasattr(chain.carry.state, "sigma"):  # a gradient has neither
        acceptance = recent.acceptance(best)
        words += [] if math.isnan(acceptance) else [f"A {acceptance:.3g}"]
        words += [f"σ {float(chain.carry.state.sigma):.3g}"]
    return "  ".join([*words, f"{recent.pace:,.0f} steps/s" if recent.pace >= 10 else f"{recent.pace:.2g} steps/s"])


def place(session: Session) -> str:
    """Return where a run stands."""
    return f"step {session.t:,}" + (f" of {session.steps:,}" if session.steps < LARGEST else "")


class OneLine(Listener):
    """A line that stands while steps are taken; in between others may print, and so the first listener is this one."""

    def __init__(self, stream: TextIO):
        self.stream, self.recent, self.width = stream, Recent(), 0
        self.words = "compiling"

    def steps_begin(self) -> None:
        """Draw the line."""
        self.draw(self.words)

    def chunk_done(self, session: Session, rows: list[dict[str, Any]], flags: np.ndarray) -> None:
        """Make room for what others print, and note the present numbers."""
        self.wipe()
        self.recent.update(session.t, flags)
        if session.t or flags.size:
            self.words = f"{place(session)}  {describe(session, self.recent)}"

    def draw(self, words: str) -> None:
        """Put words in the place of those before."""
        words = words[: shutil.get_terminal_size().columns - 1]  # what wraps could not be drawn over
        write(self.stream, f"\r{words:<{self.width}}")
        self.width = len(words)

    def wipe(self) -> None:
        """Leave an empty line."""
        self.draw("")
        write(self.stream, "\r")


class PlainLines(Listener):
    """A line every few seconds, for logs."""

    def __init__(self, tell: Callable[[str], None], seconds: float = PLAIN_SECONDS):
        self.tell, self.seconds, self.recent = tell, seconds, Recent()
        self.last = -math.inf

    def chunk_done(self, session: Session, rows: list[dict[str, Any]], flags: np.ndarray) -> None:
        """Tell a line when it is time."""
        self.recent.update(session.t, flags)
        has_news = flags.size or session.t < session.steps  # a run that is over has none
        if has_news and time.monotonic() - self.last >= self.seconds:
            self.last = time.monotonic()
            self.tell(f"{place(session)}  {describe(session, self.recent)}")


def write(stream: TextIO, words: str) -> None:
    """Write what can be written: a run does not end because its line cannot be seen."""
    encoding = stream.encoding or "utf-8"
    with contextlib.suppress(OSError, ValueError):  # a full disk; a closed stream
        stream.write(words.encode(encoding, "replace").decode(encoding))
        stream.flush()
