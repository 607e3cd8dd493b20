"""The peers: other libraries that minimise without gradients, each in a small file of its own."""

from gradless.bench.peers import blackjax, cma, evosax, evotorch, mlrose, nevergrad, scipy
from gradless.bench.peers.peer import Peer

# One evaluation at a time, for steps per second; the populations are in the races to a target.
PEERS: tuple[Peer, ...] = (
    evosax.ANNEALING,
    evosax.HILL_CLIMBING,
    blackjax.RANDOM_WALK,
    nevergrad.ONE_PLUS_ONE,
    cma.ONE_BY_ONE,
    evotorch.ONE_BY_ONE,
    scipy.DUAL_ANNEALING,
    mlrose.ANNEALING,
)
