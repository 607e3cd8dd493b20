"""Who takes part: what a contestant is, and the three that always do."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Protocol

from gradless.bench.workloads import Workload
from gradless.engine.batches import FullBatch, Minibatch
from gradless.engine.plan import LARGEST, Plan
from gradless.engine.session import Session
from gradless.engine.train import prepare
from gradless.kernels import AMC

SELDOM = 10**6  # steps between records: a benchmark looks at none


class Contestant(Protocol):
    """Somebody's way to make a step."""

    name: str

    def missing(self) -> str | None:
        """Return what to install, if it cannot run here."""

    def prepare(self, workload: Workload) -> Callable[[int], None]:
        """Return a function that makes so many steps (evaluations of the loss at population 1), compiled and warm.

        NotImplementedError where the workload is not for it.
        """


class Gradless:
    """aMC as `gl.train` runs it."""

    name = "gradless"

    def missing(self) -> str | None:
        """Nothing."""
        return None

    def prepare(self, workload: Workload) -> Callable[[int], None]:
        """Return the steps of a session that has begun."""
        chain = SessionChain(started(workload))
        chain(1)
        return chain


class SessionChain:
    """The chains of a session, taken so many steps further when called."""

    def __init__(self, session: Session):
        self.session = session

    @property
    def loss(self) -> float:
        """U(x) of the first chain, on the batch of the last step."""
        return float(self.session.chains[0].carry.state.loss)

    def __call__(self, steps: int) -> None:
        """Make so many steps."""
        self.session.advance_to(self.session.chains[0].t + steps)


class JaxScan:
    """aMC as one writes it in JAX: parameters and loss in the textbook's layout, one compiled loop."""

    name = "jax-scan"

    def missing(self) -> str | None:
        """Nothing."""
        return None

    def prepare(self, workload: Workload) -> Callable[[int], None]:
        """Return the steps of a chain that has begun."""
        from gradless.bench.jax_scan import ScannedChain

        chain = ScannedChain(workload)
        chain(1)
        return chain


class TorchEager:
    """aMC as one writes it in PyTorch: a closure, noise for each tensor, add it and put a clone back."""

    name = "torch-eager"

    def missing(self) -> str | None:
        """PyTorch, where it is not installed."""
        return None if find_spec("torch") else "pip install 'gradless[torch]'"

    def prepare(self, workload: Workload) -> Callable[[int], None]:
        """Return the steps of a chain that has begun."""
        from gradless.bench.torch_eager import EagerChain

        chain = EagerChain(workload)
        chain(1)
        chain.choose_threads()
        return chain


CONTESTANTS: tuple[Contestant, ...] = (Gradless(), JaxScan(), TorchEager())


def started(workload: Workload, num_chains: int = 1, speculate: int = 1) -> Session:
    """Return a session on the workload whose chains have begun, all of them at the workload's start."""
    plan = Plan(
        steps=LARGEST,
        chains=tuple(range(num_chains)),
        batches=FullBatch() if workload.batch is None else Minibatch(workload.batch),
        precision=workload.precision,
        record_every=SELDOM,
        speculate=speculate,
    )
    problem = workload.problem
    session = prepare(AMC(**workload.settings), problem.loss, workload.start(), plan, data=workload.data)
    session.begin()
    return session
