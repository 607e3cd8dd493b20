"""A fit as a run of the engine: from an estimator's parameters and samples to a session, and back to a net."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from sklearn.metrics import accuracy_score, r2_score
from sklearn.model_selection import train_test_split

from gradless.engine.batches import Batches, FullBatch, Minibatch
from gradless.engine.plan import Plan
from gradless.engine.session import Session, precision_of
from gradless.engine.train import prepare
from gradless.engine.tuning import tune_sigma
from gradless.kernels.amc import AMC
from gradless.models.mlp import MLP, Params
from gradless.sklearn import losses
from gradless.sklearn.losses import MULTICLASS, REGRESSION
from gradless.sklearn.nets import first_params, in_units, out_of_units, outputs_for
from gradless.sklearn.progress import Judge, Progress, row_of, run_session
from gradless.sklearn.samples import Samples, as_data, filled, merged, units
from gradless.types import Loss

RECORDS = 5  # of the curves, from one look at the progress to the next
TRIAL_STEPS = (50, 500)  # least and most, of the trial chains of sigma="auto"


class Chains(NamedTuple):
    """Where the chains of an estimator stand, and all that the next steps need; NumPy throughout."""

    seed: int
    unit: np.ndarray | None  # of each target, with `centre`: the units in which a regressor's chains work
    centre: np.ndarray | None
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
        label = samples.y[:, 0] if self.task == MULTICLASS else None
        fraction = self.estimator.validation_fraction
        index = np.arange(len(samples))
        kept, held = train_test_split(index, test_size=fraction, stratify=label, random_state=rng)
        training, validation = samples.take(np.sort(kept)), samples.take(held)
        unit, centre = self.units(training)

        def judge(params: Params) -> float:
            outputs = outputs_for(self.net, params, validation.x)
            if self.task == REGRESSION:
                return float(r2_score(validation.y, outputs * unit + centre, sample_weight=validation.weight))
            is_one = outputs > 0
            answers = np.argmax(outputs, axis=1)[:, None] if self.task == MULTICLASS else is_one.astype(int)
            return float(accuracy_score(validation.y, answers, sample_weight=validation.weight))

        return training, judge

    def units(self, samples: Samples) -> tuple[Any, Any]:
        """Return the units of a regressor's targets."""
        return units(samples) if self.task == REGRESSION else (None, None)

    def new_chains(self, samples: Samples, seed: int) -> Chains:
        """Return chains that have not begun."""
        return Chains(seed, *self.units(samples), self.shaping_settings(samples))

    def shaping_settings(self, samples: Samples) -> tuple[Any, ...]:
        """Return the settings that decide the shape of a chain's state: chains cannot go on under others."""
        own = self.estimator
        return self.net, own.chains, bool(own.signal_norm), own.epsilon == 0, str(samples.x.dtype)

    def algorithm(self, sigma: float) -> AMC:
        """Return aMC with the estimator's settings."""
        own = self.estimator
        return AMC(sigma, own.epsilon, own.n_s, bool(own.signal_norm), own.temperature)

    def loss(self, params: Params, data: dict[str, Any]) -> Loss:
        """Return the loss for the engine; a function is called once at the start, where its mistakes are the user's."""
        own, net = self.estimator, self.net
        if not callable(own.loss):
            name = own.loss if own.loss != "auto" else own.default_loss
            return losses.named_loss(net, self.task, name)
        with precision_of(data["x"].dtype):
            outputs = losses.outputs_of(net, params, data)
            shown = [np.asarray(one) for one in losses.shown(self.task, outputs, data, self.is_flat)]
            shown += [data["weight"]] if "weight" in data else []
            is_on_host = not losses.is_traceable(own.loss, *shown)
        value = losses.call_metric(own.loss, *shown)
        if np.ndim(value) != 0 or not np.isrealobj(value):
            raise ValueError(f"loss must return one number, got an array of shape {np.shape(value)}")
        return losses.metric_loss(net, self.task, own.loss, self.is_flat, is_on_host)


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
    data = as_data(samples, chains.unit, chains.centre)

    steps, patience = (own.partial_fit_iter, np.inf) if is_partial else (own.max_iter, own.n_iter_no_change)
    progress = Progress(own.tol, patience, judge, bool(own.verbose))
    session, chains = _session(job, data, start, chains, steps, progress.stretch(steps))
    first = session.t
    outcome = run_session(session, steps, progress)

    params = outcome.params
    if chains.unit is not None and chains.centre is not None:
        params = in_units(params, chains.unit, chains.centre)
    states = [type(chain.carry.state)(*map(np.asarray, chain.carry.state)) for chain in session.chains]
    # The net chosen by its validation score is not where the chains stand: there is no going on from there.
    chains = chains._replace(t=session.t, states=None if judge else states)
    rows = [row_of(row, outcome.place, len(session.chains)) for row in session.rows]
    return Fitted(params, outcome.loss, outcome.is_converged, session.t - first, rows, chains, progress.scores)


def _session(
    job: Job, data: dict[str, Any], start: Params | None, chains: Chains, steps: int, stretch: int
) -> tuple[Session, Chains]:
    """Return a session that has begun, or goes on, and the chains with their sigma_0."""
    own, dtype = job.estimator, data["x"].dtype
    params = start if start is None or chains.unit is None else out_of_units(start, chains.unit, chains.centre)
    begin: Any = partial(first_params, job.net, dtype) if params is None else params
    loss = job.loss(first_params(job.net, dtype, jax.random.key(0)) if params is None else params, data)
    batches: Batches = FullBatch() if job.batch_size is None else Minibatch(min(job.batch_size, len(data["x"])))
    if np.isnan(chains.sigma):
        sigma = own.sigma
        if sigma == "auto":
            least, most = TRIAL_STEPS
            trial = {"steps": max(least, min(steps // 20, most)), "seed": chains.seed, "batches": batches}
            trial |= {"precision": str(dtype), "stop_when_frozen": True}
            sigma = tune_sigma(job.algorithm(1.0), loss, begin, data=data, **trial).sigma
        chains = chains._replace(sigma=float(sigma))
    is_bounded = not callable(own.loss) and batches.is_fixed  # a loss of 0 is the lowest there is
    plan = Plan(
        steps=chains.t + steps,
        batches=batches,
        chains=tuple(range(own.chains)),
        seed=chains.seed,
        precision=str(dtype),
        record_every=max(1, stretch // RECORDS),
        target_loss=0.0 if is_bounded else None,
        stop_when_frozen=True,
    )
    session = prepare(job.algorithm(chains.sigma), loss, begin, plan, data=data)
    session.report = lambda words: None  # a frozen chain has come as far as it can, and ends
    if chains.states is None:
        session.begin()
    else:
        session.go_on(chains.states, chains.t)
    return session, chains
