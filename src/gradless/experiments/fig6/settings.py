"""What Fig. 6 runs at each scale: which algorithms on nets of which depth, from which start, how long."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from gradless.kernels import AMC, Adam, GradientDescent
from gradless.types import Algorithm

TITLE = "Step function by deep nets: only aMC with signal norm trains all depths"
DEPTHS = (2, 4, 8, 16, 32, 64, 128)
DEEPER = (16, 32, 64, 128)  # whose single runs panel (c) shows
PAPER_STEPS = 1_000_000
PAPER_RUNS = 20  # of each algorithm at each depth, of which the best is shown
TRAINED, PLATEAU = 0.01, 3 / 64  # the loss of a trained net, and of the best constant
MIN_RUNS = 5  # a method that never trains in fewer runs may have been unlucky
INITS = ("gaussian:0.01", "pytorch")
KINDS: dict[str, Algorithm] = {
    "GD": GradientDescent(learning_rate=1e-3),
    "Adam": Adam(learning_rate=1e-4),
    "aMC off": AMC(sigma=1e-2, epsilon=1e-2, n_s=100),
    "aMC on": AMC(sigma=1e-2, epsilon=1e-2, n_s=100, signal_norm=True),
}
LABELS = {"GD": "GD", "Adam": "Adam", "aMC off": "aMC, signal norm off", "aMC on": "aMC, signal norm on"}
KAIMING = "the paper's \"Kaiming\" start is taken to be PyTorch's default"
ENDS_EARLY = "a run ends before 1e6 epochs once it is trained or frozen"
FEWER = f"from {MIN_RUNS} runs on of each algorithm at each depth, some of each start"
LAYER_NORM = "layer norm stands before each activation, with a scale and an offset that are trained too"


@dataclass(frozen=True)
class Scale:
    """What one scale runs."""

    steps: int  # epochs of a run, at most
    layers: int  # steps times depth, at most: the cost of a run
    layers_on: int  # the same for aMC with signal norm, which ends early where it trains
    depths: tuple[int, ...]  # for every algorithm
    depths_on: tuple[int, ...]  # for aMC with signal norm
    shown: tuple[int, int]  # whose outputs panel (b) shows; there training goes on beyond U = 0.01
    helped: tuple[int, ...]  # depths with skip connections or layer norm, F6e
    deepest: int | None  # F6d
    inits: tuple[str, ...]
    chains: int  # runs that go side by side
    blocks: int  # how often; per algorithm, depth and initialisation there are chains x blocks runs
    budget: str  # of time, for people


SCALES = {
    "smoke": Scale(
        steps=60,
        layers=1_000,
        layers_on=1_000,
        depths=(2,),
        depths_on=(2, 4),
        shown=(2, 4),
        helped=(),
        deepest=None,
        inits=INITS[:1],
        chains=1,
        blocks=1,
        budget="10 s",
    ),
    "quick": Scale(
        steps=50_000,
        layers=160_000,
        layers_on=640_000,
        depths=(2, 32),
        depths_on=DEPTHS,
        shown=(2, 32),
        helped=(),
        deepest=None,
        inits=INITS,
        chains=4,
        blocks=1,
        budget="7 min",
    ),
    "paper": Scale(
        steps=PAPER_STEPS,
        layers=256 * PAPER_STEPS,
        layers_on=256 * PAPER_STEPS,
        depths=DEPTHS,
        depths_on=DEPTHS,
        shown=(4, 64),
        helped=DEPTHS,
        deepest=256,
        inits=INITS,
        chains=2,  # one per core
        blocks=5,
        budget="30 h; the first of five blocks has every panel",
    ),
}


class Cell(NamedTuple):
    """One recorded run: a few chains of one algorithm on one net."""

    kind: str
    depth: int
    init: str
    block: int
    help: str = ""  # "skip", "layer_norm" or nothing

    @property
    def name(self) -> str:
        """Return the name of the run's folder."""
        words = [self.kind.replace(" ", "-"), str(self.depth), self.help, self.init.partition(":")[0], str(self.block)]
        return "-".join(filter(None, words))

    @property
    def options(self) -> dict[str, Any]:
        """Return the options of the problem."""
        return {"depth": self.depth, "init": self.init} | ({self.help: True} if self.help else {})


def cell_of(row: dict[str, Any]) -> Cell:
    """Return the run that a row of a table is about."""
    return Cell(*(row[name] for name in Cell._fields))


def plan(scale: Scale) -> Iterator[Cell]:
    """Yield all runs, block by block, so that a reproduction stopped early has a few runs of everything.

    Within a block those that train, and so end early, come first: they show what the figure is about.
    """
    for block in range(scale.blocks):
        yield from (Cell("aMC on", depth, init, block) for depth in scale.depths_on for init in scale.inits)
        if scale.deepest is not None:
            yield from (Cell("aMC on", scale.deepest, init, block) for init in scale.inits)
        for depth in scale.helped:
            for help_ in ("skip", "layer_norm"):
                for kind in ("Adam", "aMC off") if depth == 64 else ("aMC off",):
                    yield from (Cell(kind, depth, init, block, help_) for init in scale.inits)
        for kind in ("Adam", "aMC off", "GD"):
            yield from (Cell(kind, depth, init, block) for depth in scale.depths for init in scale.inits)
