"""A fit as a run of the engine: from an estimator's parameters and samples to a session, and back to a net."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from sklearn.metrics import accuracy_score, r2_score
from sklearn.model_selection import train_test_split

from gradless.engine.batches import FullBatch, Minibatch
from gradless.engine.flat import ByIdentity
from gradless.engine.plan import Plan
from gradless.engine.precision import precision_of
from gradless.engine.session import Session
from gradless.engine.train import prepare
from gradless.engine.tuning import tune_sigma
from gradless.kernels.amc import AMC
from gradless.kernels.annealing import Anneal
from gradless.models.mlp import MLP, Params
from gradless.settings import Number, setting, settings
from gradless.sklearn import losses
from gradless.sklearn.hosted import HostMetric, Troubles, host_metric
from gradless.sklearn.losses import MULTICLASS, REGRESSION
from gradless.sklearn.nets import first_params, in_other_units, outputs_for
from gradless.sklearn.progress import Judge, Outcome, Progress, row_of, run_session
from gradless.sklearn.samples import Samples, Units, as_data, filled, merged, ordered, units_of
from gradless.types import Loss

RECORDS = 5  # of the curves, from one look at the progress to the next
NUM_SEEDS = np.iinfo(np.int32).max
TRIAL_STEPS = (50, 500)  # least and most, of the trial chains of sigma="auto"


class Chains(NamedTuple):
    """Where the chains of an estimator stand, and all that the next steps need; NumPy throughout."""

    seed: int
    units: Units | None  # in which a regressor's chains work
    settings: tuple[Any, ...]  # those that shape a state
    asked: float | str | None = None  # the estimator's sigma, when it was looked at last
    sigma: float = np.nan  # sigma_0 that came of it
    t: int = 0
    states: list[Any] | None = None  # None before the first step


class Given(NamedTuple):
    """What the engine is given to train."""

    loss: Loss
    begin: Any  # a net, or a function that draws one
    data: dict[str, Any]


@dataclass(frozen=True)
class Course:
    """What a fit begins with, and when it ends."""

    steps: int  # at most
    patience: float = np.inf  # steps without progress
    sets_aside: bool = False  # samples on which the best net is chosen
    params: Params | None = None  # the net to begin with, None for a new one
    chains: Chains | None = None  # that came to this net
    adds: bool = False  # its steps and curves to those before


@dataclass(frozen=True)
class Fitted:
    """What a fit has come to."""

    outcome: Outcome  # its loss in the user's units
    steps: int
    rows: list[dict[str, Any]]  # of the best chain; steps are counted from the beginning of this fit
    chains: Chains
    scores: list[float] = field(default_factory=list)  # on the validation set


@dataclass(frozen=True)
class Job:
    """An estimator's parameters together with what its data say: the net, and what its outputs mean."""

    estimator: Any
    net: MLP
    task: str
    is_flat: bool  # targets were given as one row of numbers

    @property
    def batch_size(self) -> int | None:
        """Return the size of minibatches, None for all the data at once."""
        return None if self.estimator.batch_size == "full" else int(self.estimator.batch_size)

    def arranged(self, samples: Samples) -> Samples:
        """Return the samples in order, and on the full batch without repetitions.

        A function as the loss that could not be told of weights gets them as they are.
        """
        if callable(self.estimator.loss) and not losses.takes_weights(self.estimator.loss):
            if samples.weight is not None:
                raise ValueError("loss must have an argument sample_weight when sample weights are given, it has none")
            return samples
        if self.batch_size is None:
            return merged(samples)
        samples = ordered(samples)
        if self.batch_size == 1 and samples.weight is not None:
            words = "on a single sample a weight decides nothing; repeat samples instead"
            raise ValueError(f"batch_size must be at least 2 with sample weights, got 1: {words}")
        return samples

    def set_aside(self, samples: Samples, rng: np.random.RandomState) -> tuple[Samples, Samples]:
        """Return the samples to train on, and those to judge nets by."""
        if samples.weight is not None:
            samples = samples.take(samples.weight > 0)
        index, fraction = np.arange(len(samples)), self.estimator.validation_fraction
        label = samples.y[:, 0] if self.task == MULTICLASS else None
        kept, held = train_test_split(index, test_size=fraction, stratify=label, random_state=rng)
        if self.task == REGRESSION and len(held) < 2:  # R^2 compares with the spread of the targets
            raise ValueError(f"validation_fraction must set aside 2 samples at least, got {fraction} of {len(samples)}")
        return samples.take(kept), samples.take(held)

    def judge(self, validation: Samples, units: Units | None) -> Judge:
        """Return the score on samples that are set aside: accuracy, or R^2 of a regressor."""
        wanted = validation.y[:, 0] if self.task == MULTICLASS else validation.y

        def judge(params: Params) -> float:
            outputs = outputs_for(self.net, params, validation.x, units)
            if self.task == REGRESSION:
                return float(r2_score(wanted, outputs, sample_weight=validation.weight))
            answers = np.argmax(outputs, axis=1) if self.task == MULTICLASS else (outputs > 0).astype(int)
            return float(accuracy_score(wanted, answers, sample_weight=validation.weight))

        return judge

    def units(self, samples: Samples) -> Units | None:
        """Return the units of a regressor's targets."""
        return units_of(samples) if self.task == REGRESSION else None

    def new_chains(self, samples: Samples, seed: int) -> Chains:
        """Return chains that have not begun."""
        return Chains(seed, self.units(samples), self.shaping_settings(samples))

    def can_go_on(self, chains: Chains, samples: Samples) -> bool:
        """Return whether chains stand somewhere, and have the shape and the units for these samples."""
        if chains.states is None or chains.settings != self.shaping_settings(samples):
            return False
        return chains.units is None or not chains.units.are_outdated_by(samples)

    def shaping_settings(self, samples: Samples) -> tuple[Any, ...]:
        """Return the settings that decide the shape of a chain's state: chains cannot go on under others."""
        own = self.estimator
        return self.net, own.chains, bool(own.signal_norm), own.epsilon == 0, str(samples.x.dtype)

    def algorithm(self, sigma: float, units: Units | None) -> AMC:
        """Return aMC with the estimator's settings; the temperature is one in the user's units, as the loss is."""
        own, unit = self.estimator, self.loss_unit(units)
        # Plain numbers: an array of no axes is no 0 that the compiler sees, and the state would have another shape.
        temperature = in_unit(own.temperature, unit)
        return AMC(sigma, float(own.epsilon), float(own.n_s), bool(own.signal_norm), temperature)

    @property
    def loss_name(self) -> str:
        """The name of the loss, if it has one."""
        own = self.estimator
        return own.default_loss if own.loss == "auto" else own.loss

    def loss_unit(self, units: Units | None) -> float:
        """Return what the chain's loss has to be multiplied with to be in the user's units."""
        return 1.0 if units is None or callable(self.estimator.loss) else units.largest ** losses.POWERS[self.loss_name]

    def loss(self, params: Params, data: dict[str, Any]) -> tuple[Loss, HostMetric | None]:
        """Return the loss for the engine, and the metric behind it if that has to be called in Python.

        A function is called once here, at `params`, so that its mistakes are seen as it makes them.
        """
        own = self.estimator
        if not callable(own.loss):
            return losses.named_loss(self.net, self.task, self.loss_name), None
        with precision_of(data["x"].dtype):
            outputs = losses.outputs_of(self.net, params, data)
            shown = [*losses.shown(self.task, outputs, data, self.is_flat)]
            shown += [data["weight"]] if "weight" in data else []
            is_traceable = losses.is_traceable(own.loss, *shown)
        losses.as_number(losses.call_metric(own.loss, *map(np.array, shown)))  # copies, for it may write into them
        host = None if is_traceable else host_metric(ByIdentity(own.loss))
        return losses.metric_loss(self.net, self.task, ByIdentity(host or own.loss), self.is_flat), host


def in_unit(temperature: Any, unit: float) -> Any:
    """Return a temperature, perhaps one that falls, as a multiple of `unit`."""
    if isinstance(temperature, Anneal):
        return replace(temperature, start=temperature.start / unit, end=temperature.end / unit)
    if not callable(temperature):
        return float(temperature) / unit
    return temperature if unit == 1 else InUnit(temperature, unit)


@settings
class InUnit:
    """A temperature that is a function, as a multiple of a unit. Another unit is no other program."""

    function: Callable[[jax.Array], jax.Array] = setting(doc="the user's temperature", is_static=True)
    unit: Number = setting(doc="what it is divided by")

    def __call__(self, n: jax.Array) -> jax.Array:
        """Return the temperature of step n."""
        return self.function(n) / self.unit


def fit_chains(job: Job, samples: Samples, course: Course, rng: np.random.RandomState) -> Fitted:
    """Train and return the net; with the very chains before, if there are any and they can go on."""
    own, seed = job.estimator, int(rng.randint(NUM_SEEDS))
    if course.chains:  # with the same random_state its moves would be those that were tried before
        seed = (course.chains.seed + 1 + seed) % NUM_SEEDS
    training, validation = job.set_aside(samples, rng) if course.sets_aside else (samples, None)
    samples = job.arranged(training)
    chains = course.chains
    if chains is None or not job.can_go_on(chains, samples):
        chains = job.new_chains(samples, seed)
    params = course.params
    if params is not None and course.chains and course.chains.units and chains.units:
        params = in_other_units(params, course.chains.units, chains.units)
    if job.batch_size is None and not callable(own.loss):
        samples = filled(samples)
    data = as_data(samples, chains.units)

    unit = job.loss_unit(chains.units)
    judge = None if validation is None else job.judge(validation, chains.units)
    progress = Progress(own.tol, course.patience, judge, bool(own.verbose), unit)
    with Troubles() as troubles:
        given = _given(job, data, params, chains.seed, troubles)
        session, chains = _session(job, given, chains, course.steps, progress.stretch(course.steps))
        session.listeners.append(troubles)
        first = session.t
        outcome = run_session(session, course.steps, progress)

    states = [type(chain.carry.state)(*map(np.asarray, chain.carry.state)) for chain in session.chains]
    # The net chosen by its validation score is not where the chains stand: there is no going on from there.
    chains = chains._replace(t=session.t, states=None if judge else states)
    rows = [row_of(row, outcome.place, len(session.chains)) for row in session.rows]
    rows = [row for row in rows if not np.isnan(row["loss"])]  # of a chain that ended before the others no more
    rows = [row | {"step": row["step"] - first, "loss": unit * row["loss"]} for row in rows]
    return Fitted(replace(outcome, loss=unit * outcome.loss), session.t - first, rows, chains, progress.scores)


def _given(job: Job, data: dict[str, Any], start: Params | None, seed: int, troubles: Troubles) -> Given:
    """Return what is to be trained, from `start` or from nets that the chains draw."""
    draw = partial(first_params, job.net, str(data["x"].dtype))
    loss, host = job.loss(draw(jax.random.key(seed)) if start is None else start, data)
    return Given(loss, draw if start is None else start, data if host is None else troubles.follow(host, data))


def _session(job: Job, given: Given, chains: Chains, steps: int, stretch: int) -> tuple[Session, Chains]:
    """Return a session that has begun, or goes on, and the chains with their sigma_0."""
    own, (loss, begin, data) = job.estimator, given
    batches = FullBatch() if job.batch_size is None else Minibatch(min(job.batch_size, len(data["x"])))
    plan = Plan(
        steps=chains.t + steps,
        batches=batches,
        chains=tuple(range(own.chains)),
        seed=chains.seed,
        precision=str(data["x"].dtype),
        record_every=max(1, stretch // RECORDS),
        # A named loss is never below 0. On a minibatch it may be 0 though the next one's is not.
        target_loss=0.0 if batches.is_fixed and not callable(own.loss) else None,
        stop_when_frozen=True,
    )
    asked = own.sigma if isinstance(own.sigma, str) else float(own.sigma)
    is_other_sigma = asked != chains.asked
    if is_other_sigma:
        sigma = _tuned(job, chains.units, given, plan) if asked == "auto" else asked
        chains = chains._replace(asked=asked, sigma=float(sigma))
    algorithm = job.algorithm(chains.sigma, chains.units)
    session = prepare(algorithm, loss, begin, plan, data=data)
    session.report = lambda words: None  # a frozen chain has come as far as it can, and ends
    if chains.states is None:
        session.begin()
    else:
        with precision_of(session.dtype):
            states = [algorithm.reset(state) for state in chains.states] if is_other_sigma else chains.states
        session.go_on(states, chains.t)
    return session, chains


def _tuned(job: Job, units: Units | None, given: Given, plan: Plan) -> float:
    least, most = TRIAL_STEPS
    tuning = tune_sigma(
        job.algorithm(1.0, units),
        given.loss,
        given.begin,
        data=given.data,
        steps=max(least, min(plan.steps // 20, most)),
        batches=plan.batches,
        seed=plan.seed,
        precision=plan.precision,
        stop_when_frozen=True,
        progress=False,  # a fit is silent unless it is verbose
    )
    return tuning.sigma
