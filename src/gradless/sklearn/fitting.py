"""A fit as a run of the engine: from an estimator's parameters and samples to a session, and back to a net."""

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
from gradless.engine.session import Listener, Session, precision_of
from gradless.engine.train import prepare
from gradless.engine.tuning import tune_sigma
from gradless.kernels.amc import AMC
from gradless.kernels.annealing import Anneal
from gradless.models.mlp import MLP, Params
from gradless.sklearn import losses
from gradless.sklearn.losses import MULTICLASS, REGRESSION
from gradless.sklearn.nets import first_params, in_units, out_of_units, outputs_for
from gradless.sklearn.progress import Judge, Progress, row_of, run_session
from gradless.sklearn.samples import Samples, Units, as_data, filled, merged, units_of
from gradless.types import Loss

RECORDS = 5  # of the curves, from one look at the progress to the next
TRIAL_STEPS = (50, 500)  # least and most, of the trial chains of sigma="auto"


class Chains(NamedTuple):
    """Where the chains of an estimator stand, and all that the next steps need; NumPy throughout."""

    seed: int
    units: Units | None  # in which a regressor's chains work
    settings: tuple[Any, ...]  # those that shape a state
    sigma: float = np.nan  # sigma_0
    t: int = 0
    states: list[Any] | None = None  # None before the first step


@dataclass(frozen=True)
class Fitted:
    """What a fit has come to."""

    params: Params
    loss: float
    is_converged: bool
    steps: int
    rows: list[dict[str, Any]]  # of the best chain
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

    def distinct(self, samples: Samples) -> Samples:
        """Return the samples without repetitions, unless the loss is a function that could not be told of them."""
        if not callable(self.estimator.loss) or losses.takes_weights(self.estimator.loss):
            return merged(samples)
        if samples.weight is not None:
            raise ValueError("loss must have an argument sample_weight when sample weights are given, it has none")
        return samples

    def set_aside(self, samples: Samples, rng: np.random.RandomState) -> tuple[Samples, Judge]:
        """Return the samples to train on, and the score on the others: accuracy, or R^2 of a regressor."""
        index, fraction = np.arange(len(samples)), self.estimator.validation_fraction
        label = samples.y[:, 0] if self.task == MULTICLASS else None
        kept, held = train_test_split(index, test_size=fraction, stratify=label, random_state=rng)
        training, validation = samples.take(np.sort(kept)), samples.take(held)
        wanted = validation.y if label is None else label[held]
        units = self.units(training)

        def judge(params: Params) -> float:
            outputs = outputs_for(self.net, params, validation.x)
            if units is not None:
                return float(r2_score(wanted, outputs * units.spread + units.centre, sample_weight=validation.weight))
            answers = np.argmax(outputs, axis=1) if self.task == MULTICLASS else (outputs > 0).astype(int)
            return float(accuracy_score(wanted, answers, sample_weight=validation.weight))

        return training, judge

    def units(self, samples: Samples) -> Units | None:
        """Return the units of a regressor's targets."""
        return units_of(samples) if self.task == REGRESSION else None

    def new_chains(self, samples: Samples, seed: int) -> Chains:
        """Return chains that have not begun."""
        return Chains(seed, self.units(samples), self.shaping_settings(samples))

    def shaping_settings(self, samples: Samples) -> tuple[Any, ...]:
        """Return the settings that decide the shape of a chain's state: chains cannot go on under others."""
        own = self.estimator
        return self.net, own.chains, bool(own.signal_norm), own.epsilon == 0, str(samples.x.dtype)

    def algorithm(self, sigma: float, units: Units | None) -> AMC:
        """Return aMC with the estimator's settings; the temperature is one in the user's units, as the loss is."""
        own, unit = self.estimator, self.loss_unit(units)
        return AMC(sigma, own.epsilon, own.n_s, bool(own.signal_norm), in_unit(own.temperature, unit))

    @property
    def loss_name(self) -> str:
        """The name of the loss, if it has one."""
        own = self.estimator
        return own.default_loss if own.loss == "auto" else own.loss

    def loss_unit(self, units: Units | None) -> float:
        """Return what the chain's loss has to be multiplied with to be in the user's units."""
        return 1.0 if units is None or callable(self.estimator.loss) else units.largest ** losses.POWERS[self.loss_name]

    def loss(self, params: Params, data: dict[str, Any]) -> tuple[Loss, losses.HostMetric | None]:
        """Return the loss for the engine, and the metric behind it if that has to be called in Python.

        A function is called once here, at `params`, so that its mistakes are seen as it makes them.
        """
        own = self.estimator
        if not callable(own.loss):
            return losses.named_loss(self.net, self.task, self.loss_name), None
        with precision_of(data["x"].dtype):
            outputs = losses.outputs_of(self.net, params, data)
            shown = [np.asarray(one) for one in losses.shown(self.task, outputs, data, self.is_flat)]
            shown += [data["weight"]] if "weight" in data else []
            is_traceable = losses.is_traceable(own.loss, *shown)
        value = losses.call_metric(own.loss, *shown)
        if np.ndim(value) != 0:
            raise ValueError(f"loss must return one number, got an array of shape {np.shape(value)}")
        host = None if is_traceable else losses.host_metric(ByIdentity(own.loss))
        return losses.metric_loss(self.net, self.task, ByIdentity(host or own.loss), self.is_flat), host


def in_unit(temperature: Any, unit: float) -> Any:
    """Return a temperature, perhaps one that falls, as a multiple of `unit`."""
    if isinstance(temperature, Anneal):
        return replace(temperature, start=temperature.start / unit, end=temperature.end / unit)
    if not callable(temperature):
        return temperature / unit
    return temperature if unit == 1 else lambda n: temperature(n) / unit


class Troubles(Listener):
    """Ends a fit with the exception of a metric that was called in Python."""

    def __init__(self, metric: losses.HostMetric):
        self.metric = metric
        metric.trouble = None

    def chunk_done(self, session: Session, rows: list[dict[str, Any]], flags: np.ndarray) -> None:
        """Raise what the metric has raised."""
        if self.metric.trouble is not None:
            raise self.metric.trouble


def fit_chains(
    job: Job, samples: Samples, start: Params | None, chains: Chains | None, is_partial: bool, rng: Any
) -> Fitted:
    """Train and return the net; from `start` if there is one, with the very chains before if `chains` is given."""
    own, seed = job.estimator, int(rng.randint(np.iinfo(np.int32).max))
    samples, judge = job.distinct(samples), None
    if own.early_stopping and not is_partial:
        samples, judge = job.set_aside(samples, rng)
    if chains is None or chains.states is None or chains.settings != job.shaping_settings(samples):
        chains = job.new_chains(samples, seed)
    if job.batch_size is None and not callable(own.loss):
        samples = filled(samples)
    data = as_data(samples, chains.units)

    steps, patience = (own.partial_fit_iter, np.inf) if is_partial else (own.max_iter, own.n_iter_no_change)
    unit = job.loss_unit(chains.units)
    progress = Progress(own.tol, patience, judge, bool(own.verbose), unit)
    session, chains = _session(job, data, start, chains, steps, progress.stretch(steps))
    first = session.t
    outcome = run_session(session, steps, progress)

    params = outcome.params if chains.units is None else in_units(outcome.params, chains.units)
    states = [type(chain.carry.state)(*map(np.asarray, chain.carry.state)) for chain in session.chains]
    # The net chosen by its validation score is not where the chains stand: there is no going on from there.
    chains = chains._replace(t=session.t, states=None if judge else states)
    rows = [row_of(row, outcome.place, len(session.chains)) for row in session.rows]
    # Of a chain that ended before the others there are no more.
    rows = [row | {"loss": unit * row["loss"]} for row in rows if not np.isnan(row["loss"])]
    return Fitted(params, unit * outcome.loss, outcome.is_converged, session.t - first, rows, chains, progress.scores)


def _session(
    job: Job, data: dict[str, Any], start: Params | None, chains: Chains, steps: int, stretch: int
) -> tuple[Session, Chains]:
    """Return a session that has begun, or goes on, and the chains with their sigma_0."""
    own, precision = job.estimator, str(data["x"].dtype)
    if start is not None and chains.units is not None:
        start = out_of_units(start, chains.units)
    draw = partial(first_params, job.net, precision)
    loss, host = job.loss(draw(jax.random.key(chains.seed)) if start is None else start, data)
    begin = draw if start is None else start
    batches = FullBatch() if job.batch_size is None else Minibatch(min(job.batch_size, len(data["x"])))
    plan = Plan(
        steps=chains.t + steps,
        batches=batches,
        chains=tuple(range(own.chains)),
        seed=chains.seed,
        precision=precision,
        record_every=max(1, stretch // RECORDS),
        # A named loss is never below 0. On a minibatch it may be 0 though the next one's is not.
        target_loss=0.0 if batches.is_fixed and not callable(own.loss) else None,
        stop_when_frozen=True,
    )
    if np.isnan(chains.sigma):
        sigma = _tuned(job, chains.units, loss, begin, data, plan) if own.sigma == "auto" else own.sigma
        chains = chains._replace(sigma=float(sigma))
    session = prepare(job.algorithm(chains.sigma, chains.units), loss, begin, plan, data=data)
    session.report = lambda words: None  # a frozen chain has come as far as it can, and ends
    if host is not None:
        session.listeners.append(Troubles(host))
    if chains.states is None:
        session.begin()
    else:
        session.go_on(chains.states, chains.t)
    return session, chains


def _tuned(job: Job, units: Units | None, loss: Loss, begin: Any, data: Any, plan: Plan) -> float:
    least, most = TRIAL_STEPS
    tuning = tune_sigma(
        job.algorithm(1.0, units),
        loss,
        begin,
        data=data,
        steps=max(least, min(plan.steps // 20, most)),
        batches=plan.batches,
        seed=plan.seed,
        precision=plan.precision,
        stop_when_frozen=True,
    )
    return tuning.sigma
