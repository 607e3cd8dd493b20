"""aMC step by step: Sec. III A of the paper against numbers worked by hand, then its laws."""

import math
from statistics import NormalDist

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gradless.kernels import AMC, Anneal
from gradless.kernels.amc import AMCState
from gradless.proposals import Noise
from gradless.types import Evaluation

NORMAL = NormalDist()

# All numbers below are small multiples of powers of two, so that every sum and product is exact.
STATE = AMCState(
    x=jnp.array([1.0, 2.0]),
    loss=jnp.float32(5.0),
    lam=jnp.array([0.5, 2.0]),
    mu=jnp.array([0.25, -0.5]),
    sigma=jnp.float32(0.5),
    n_cr=jnp.int32(1),
    n=jnp.int32(7),
)
NOISE = Noise(normal=jnp.array([1.0, -2.0]), xi=None)
EPS = [0.5, -2.5]  # mu + lam sigma z = 0.25 + 0.5 * 0.5 * 1 and -0.5 + 2 * 0.5 * (-2)
X_NEW = [1.5, -0.5]


def returning(loss, lam=None):
    """Return an evaluation that always finds this loss."""
    return lambda x: Evaluation(jnp.float32(loss), lam)


def same(one, other):
    return all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))


def test_the_proposal_adds_mu_plus_lambda_sigma_z_to_all_parameters_at_once():
    proposal = AMC(epsilon=0.25).propose(NOISE, STATE)
    np.testing.assert_array_equal(proposal.eps, EPS)
    np.testing.assert_array_equal(proposal.x, X_NEW)


@pytest.mark.parametrize("is_compiled", [False, True])
def test_the_proposal_is_rounded_the_same_compiled_or_not(is_compiled):
    """A fused x + (mu + sigma z) would move x elsewhere in a loop than in a replay."""
    keys = jax.random.split(jax.random.key(6), 4)
    x, mu, lam, normal = (np.asarray(jax.random.normal(key, (10_000,))) for key in keys)
    state = STATE._replace(x=x, mu=mu, lam=lam, sigma=np.float32(0.3))
    propose = AMC(epsilon=0.25).propose
    proposal = (jax.jit(propose) if is_compiled else propose)(Noise(normal, None), state)
    eps = mu + (lam * np.float32(0.3)) * normal  # NumPy rounds after each operation
    np.testing.assert_array_equal(proposal.eps, eps)
    np.testing.assert_array_equal(proposal.x, x + eps)


def test_the_loss_is_evaluated_once_at_the_proposal_on_a_fixed_batch():
    seen = []

    def evaluate(x):
        seen.append(np.asarray(x).tolist())
        return Evaluation(jnp.float32(4.0))

    AMC(epsilon=0.25).step(NOISE, STATE, evaluate, False)
    assert seen == [X_NEW]


def test_on_a_new_batch_the_loss_is_evaluated_at_x_and_at_the_proposal():
    seen = []

    def evaluate(x):
        seen.append(np.asarray(x).tolist())
        return Evaluation(jnp.float32(4.0))

    AMC(epsilon=0.25).step(NOISE, STATE, evaluate, True)
    assert seen == [[1.0, 2.0], X_NEW]


@pytest.mark.parametrize("loss_new", [4.0, 5.0])  # lower, and a tie
def test_an_accepted_move_is_kept_and_mu_follows_the_actual_displacement(loss_new):
    state, info = AMC(epsilon=0.25, n_s=2).step(NOISE, STATE, returning(loss_new, jnp.array([3.0, 4.0])), False)
    assert bool(info.is_accepted)
    assert bool(info.is_finite)
    np.testing.assert_array_equal(state.x, X_NEW)
    assert state.loss == loss_new
    np.testing.assert_array_equal(state.lam, [3.0, 4.0])
    np.testing.assert_array_equal(state.mu, [0.3125, -1.0])  # mu + (eps - mu) / 4
    assert (state.sigma, state.n_cr, state.n) == (0.5, 0, 8)


@pytest.mark.parametrize("loss_new", [5.5, math.nan, math.inf, -math.inf])
def test_a_rejected_move_changes_nothing_but_the_counters(loss_new):
    state, info = AMC(epsilon=0.25, n_s=3).step(NOISE, STATE, returning(loss_new, jnp.array([3.0, 4.0])), False)
    assert not info.is_accepted
    assert bool(info.is_finite) == math.isfinite(loss_new)
    assert same(state, STATE._replace(n_cr=jnp.int32(2), n=jnp.int32(8)))


@pytest.mark.parametrize(("decay", "sigma"), [(0.95, np.float32(0.95) * np.float32(0.5)), (0.5, 0.25)])
def test_after_n_s_rejections_in_a_row_sigma_shrinks_and_mu_and_the_counter_start_from_zero(decay, sigma):
    state, _ = AMC(epsilon=0.25, n_s=2, sigma_decay=decay).step(NOISE, STATE, returning(6.0), False)
    expected = STATE._replace(mu=jnp.zeros(2), sigma=jnp.float32(sigma), n_cr=jnp.int32(0), n=jnp.int32(8))
    assert same(state, expected)


def test_sigma_shrinks_by_the_paper_s_factor_by_default():
    state, _ = AMC(n_s=2).step(NOISE, STATE, returning(6.0), False)
    assert state.sigma == np.float32(0.95) * np.float32(0.5)


def test_the_counter_runs_through_a_hand_worked_sequence():
    """n_s = 3; accepted moves marked A, rejected R: the counter, and where sigma halves."""
    algorithm = AMC(sigma=8.0, n_s=3, sigma_decay=0.5)
    state = algorithm.init(jnp.zeros(1), Evaluation(jnp.float32(0.0)))
    outcomes, counter, sigma = "RRARRRRARRRRRR", [], []
    for outcome in outcomes:
        state, _ = algorithm.step(Noise(jnp.ones(1), None), state, returning({"A": 0.0, "R": 1.0}[outcome]), False)
        counter.append(int(state.n_cr))
        sigma.append(float(state.sigma))
    assert counter == [1, 2, 0, 1, 2, 0, 1, 0, 1, 2, 0, 1, 2, 0]
    assert sigma == [8, 8, 8, 8, 8, 4, 4, 4, 4, 4, 2, 2, 2, 1]


def test_with_n_s_of_one_every_rejection_shrinks_sigma():
    state, _ = AMC(n_s=1, sigma_decay=0.5).step(NOISE, STATE._replace(n_cr=jnp.int32(0)), returning(6.0), False)
    assert (state.sigma, state.n_cr) == (0.25, 0)


def test_a_chain_that_goes_on_with_a_smaller_n_s_shrinks_sigma_at_the_next_rejection():
    state, _ = AMC(n_s=3, sigma_decay=0.5).step(NOISE, STATE._replace(n_cr=jnp.int32(50)), returning(6.0), False)
    assert (state.sigma, state.n_cr) == (0.25, 0)


def test_with_infinite_n_s_sigma_never_shrinks():
    state, _ = AMC(n_s=math.inf).step(NOISE, STATE._replace(n_cr=jnp.int32(10**9)), returning(6.0), False)
    assert state.sigma == 0.5
    assert state.n_cr == 10**9 + 1


def test_the_start_has_mu_of_zero_and_sigma_of_sigma_0():
    evaluation = Evaluation(jnp.float32(3.0), lam=jnp.array([0.5, 2.0]))
    state = AMC(sigma=0.5, epsilon=0.25).init(jnp.array([1.0, 2.0]), evaluation)
    expected = AMCState(jnp.array([1.0, 2.0]), 3.0, jnp.array([0.5, 2.0]), jnp.zeros(2), 0.5, 0, 0)
    assert same(state, expected)


def test_with_epsilon_of_zero_no_vector_mu_is_held():
    """The memory cost is two versions of the net unless epsilon is not 0. Paper: Sec. III A, last paragraph."""
    algorithm = AMC(sigma=0.5, epsilon=0)
    state = algorithm.init(jnp.ones(1000), Evaluation(jnp.float32(3.0)))
    assert state.mu.shape == state.lam.shape == ()
    state, _ = algorithm.step(Noise(jnp.ones(1000), None), state, returning(2.0), False)
    assert state.mu.shape == ()
    np.testing.assert_array_equal(state.x, np.full(1000, 1.5, np.float32))


def test_negative_epsilon_pushes_mu_away_from_the_displacement():
    state, _ = AMC(epsilon=-0.25).step(NOISE, STATE, returning(4.0), False)
    np.testing.assert_array_equal(state.mu, [0.1875, 0.0])


def test_a_reset_returns_to_sigma_0_and_mu_of_zero_with_x_where_it_is():
    state = AMC(sigma=4.0, epsilon=0.25).reset(STATE)
    assert same(state, STATE._replace(sigma=jnp.float32(4.0), mu=jnp.zeros(2), n_cr=jnp.int32(0)))


# The classic mistake: U(x) is kept from another batch. On the new one U(x) = 1, whatever was kept.
@pytest.mark.parametrize("is_new", [True, jnp.array(True)], ids=["known", "traced"])
@pytest.mark.parametrize(("stale", "loss_new", "expected"), [(5.0, 2.0, False), (0.5, 0.75, True)])
def test_a_new_batch_is_judged_against_the_loss_on_that_batch(is_new, stale, loss_new, expected):
    def evaluate(x):
        return Evaluation(jnp.where(x[0] == 1.0, 1.0, loss_new), jnp.array([1.0, 1.0]))

    state, info = AMC(epsilon=0.25).step(NOISE, STATE._replace(loss=jnp.float32(stale)), evaluate, is_new)
    assert bool(info.is_accepted) is expected
    assert state.loss == (loss_new if expected else 1.0)


def test_on_a_new_batch_the_proposal_uses_lambda_of_that_batch():
    def evaluate(x):
        return Evaluation(jnp.where(x[0] == 1.0, 1.0, 0.5), jnp.array([4.0, 8.0]))

    state, _ = AMC(epsilon=0.25).step(NOISE, STATE, evaluate, True)
    np.testing.assert_array_equal(state.x, [1 + 0.25 + 4 * 0.5 * 1, 2 - 0.5 + 8 * 0.5 * -2])


def test_a_held_batch_keeps_the_loss_it_has():
    state, info = AMC(epsilon=0.25).step(NOISE, STATE, returning(4.5), jnp.array(False))
    assert bool(info.is_accepted)  # 4.5 <= 5, the loss that was kept
    assert state.loss == 4.5


@pytest.mark.parametrize(("xi", "expected"), [(0.3678, True), (0.3680, False)])
@pytest.mark.parametrize("temperature", [2.0, Anneal(start=8.0, end=0.5, steps=14), lambda n: 16.0 / (n + 1)])
def test_a_finite_temperature_accepts_a_rise_with_the_boltzmann_factor(xi, expected, temperature):
    """U' - U = 2 at T = 2: exp(-1) = 0.36788. At step 7 both schedules give T = 2: 8 * (1/16)^(7/14) and 16/8."""
    noise = NOISE._replace(xi=jnp.float32(xi))
    _, info = AMC(epsilon=0.25, temperature=temperature).step(noise, STATE, returning(7.0), False)
    assert bool(info.is_accepted) is expected


def test_annealing_falls_geometrically_from_start_to_end_and_stays():
    temperature = Anneal(start=16.0, end=1.0, steps=4)
    # Powers are computed in float32: a relative error of a few times 6e-8.
    np.testing.assert_allclose([temperature(jnp.int32(n)) for n in range(7)], [16, 8, 4, 2, 1, 1, 1], rtol=1e-6)


def test_x_is_the_same_to_the_last_bit_after_10_000_rejections():
    """x + eps - eps is not x in floating point; a rejected x is never touched."""
    x = jax.random.normal(jax.random.key(0), (50,))
    algorithm = AMC(sigma=1.0, epsilon=0.1, n_s=100)

    def evaluate(y):
        return Evaluation(jnp.max(jnp.abs(y - x)))

    def step(state, t):
        noise = algorithm.draw(jax.random.fold_in(jax.random.key(1), t), x)
        return algorithm.step(noise, state, evaluate, False)

    run = jax.jit(lambda x: jax.lax.scan(step, algorithm.init(x, evaluate(x)), jnp.arange(10_000)))
    state, info = run(x)
    assert not np.any(info.is_accepted)
    np.testing.assert_array_equal(state.x, x)
    assert state.loss == 0
    # 100 rescales: each is one rounding of relative size 2^-24.
    np.testing.assert_allclose(state.sigma, 0.95**100, rtol=100 * 2.0**-23)


@pytest.mark.parametrize("momentum", [-0.7, 0.0, 1.2])
def test_on_a_linear_loss_momentum_sets_the_acceptance_and_grows_at_its_own_rate(momentum):
    """With m = -mu.g/(sigma |g|) a move is accepted with probability Phi(m), and m grows by epsilon phi(m) a step.

    In units of sigma the move along -g is m + u with u ~ N(0, 1); it is accepted if m + u >= 0, and then m gains
    epsilon u: on average epsilon E[u; u >= -m] = epsilon phi(m).
    """
    num, sigma, epsilon = 100_000, 1e-2, 0.25
    with jax.enable_x64(True):
        g = jnp.array([3.0, -4.0, 12.0])  # |g| = 13
        algorithm = AMC(sigma=sigma, epsilon=epsilon, n_s=math.inf)
        start = algorithm.init(jnp.zeros(3), Evaluation(jnp.zeros(())))
        # The part of mu across g is of no consequence: (4, 3, 0).g = 0.
        start = start._replace(mu=-momentum * sigma * g / 13 + 1e-3 * jnp.array([4.0, 3.0, 0.0]))

        def step(key):
            return algorithm.step(algorithm.draw(key, start.x), start, lambda x: Evaluation(x @ g), False)

        state, info = jax.jit(jax.vmap(step))(jax.random.split(jax.random.key(2), num))
        m = np.asarray(-state.mu @ g / (sigma * 13))
    acceptance = NORMAL.cdf(momentum)
    assert abs(np.mean(info.is_accepted) - acceptance) < 4 * math.sqrt(acceptance * (1 - acceptance) / num)
    # The variance of u where it is accepted is at most E[u^2] = 1.
    assert abs(np.mean(m) - momentum - epsilon * NORMAL.pdf(momentum)) < 4 * epsilon / math.sqrt(num)


@pytest.mark.parametrize(("a", "n_s"), [(0.5, 3), (0.2, 5), (0.8, 1)])
def test_sigma_is_rescaled_at_the_known_rate(a, n_s):
    """With acceptance a and q = 1 - a, sigma shrinks a q^n_s / (1 - q^n_s) times per step.

    The acceptance is made to be a: the loss is 0 on a fraction a of the line, in stripes far narrower than a move,
    and 1 elsewhere; a chain at loss 0 accepts ties only.
    """
    chains, steps, q = 200, 1000, 1 - a
    algorithm = AMC(sigma=1.0, n_s=n_s, sigma_decay=0.999)

    def evaluate(x):
        return Evaluation(jnp.where(jnp.mod(x[0] * 1e6, 1.0) < a, 0.0, 1.0))

    def run(key):
        def step(state, t):
            noise = algorithm.draw(jax.random.fold_in(key, t), state.x)
            return algorithm.step(noise, state, evaluate, False)

        return jax.lax.scan(step, algorithm.init(jnp.zeros(1), evaluate(jnp.zeros(1))), jnp.arange(steps))

    with jax.enable_x64(True):
        state, info = jax.jit(jax.vmap(run))(jax.random.split(jax.random.key(4), chains))
        rescales = np.rint(np.log(np.asarray(state.sigma)) / math.log(0.999))
    acceptance = np.mean(info.is_accepted)
    assert abs(acceptance - a) < 4 * math.sqrt(a * q / (chains * steps))
    # Times between rescales are waiting times for n_s rejections in a row (Feller, XIII.7): of mean (1 - q^n)/(a q^n)
    # and variance (1 - (2n + 1) a q^n - q^(2n + 1))/(a q^n)^2. Their number in a long time t has the mean
    # t/mean + (variance/mean^2 - 1)/2 and the variance t variance/mean^3.
    run_of = q**n_s
    mean = (1 - run_of) / (a * run_of)
    variance = (1 - (2 * n_s + 1) * a * run_of - q * run_of**2) / (a * run_of) ** 2
    assert math.isclose(1 / mean, a * q**n_s / (1 - q**n_s))
    expected = chains * (steps / mean + (variance / mean**2 - 1) / 2)
    assert abs(rescales.sum() - expected) < 4 * math.sqrt(chains * steps * variance / mean**3)
