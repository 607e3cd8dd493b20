"""`MCClassifier` and `MCRegressor`: fully connected nets trained by aMC, as scikit-learn estimators."""

import inspect
import warnings
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets, type_of_target, unique_labels
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, column_or_1d, validate_data

from gradless.models.mlp import MLP, Params
from gradless.sklearn.fitting import Chains, Course, Fitted, Job, fit_chains
from gradless.sklearn.losses import CLASSIFIER_LOSSES, MULTICLASS, MULTILABEL, REGRESSION, REGRESSOR_LOSSES
from gradless.sklearn.nets import as_params, outputs_for
from gradless.sklearn.parameters import check_parameters, widths
from gradless.sklearn.samples import Samples

CURVES = {"step_curve_": "step", "loss_curve_": "loss", "acceptance_curve_": "acceptance", "sigma_curve_": "sigma"}


class MCNet(BaseEstimator):
    """What the two estimators share. Paper: Sec. III; the net is that of Sec. II E.

    hidden_layer_sizes: neurons of each hidden layer; () for none.
    activation: tanh, relu, sigmoid, sine, step (a hard threshold, which no gradient can train) or identity.
    sigma: initial move scale, or "auto": short trial chains choose it.
    epsilon: rate at which the moves' centre mu follows accepted moves.
    n_s: rejections in a row before sigma shrinks by 0.95.
    signal_norm: scale moves by the neurons' inputs.
    temperature: of the Metropolis rule; a number, or a function of the step such as `gl.anneal`.
    max_iter: most steps of `fit`.
    partial_fit_iter: steps of each `partial_fit`.
    batch_size: "full", or the size of the minibatches.
    tol, n_iter_no_change: a fit ends when so many steps have not lowered the loss by tol times its first value (or,
        with early stopping, not raised the validation score by tol); n_iter_no_change=inf switches this off.
    early_stopping, validation_fraction: `fit` sets a part of the samples aside and returns the net best on it.
    chains: independent chains with the same settings, each of which is one number; the best is kept.
    warm_start: `fit` begins with the weights of the fit before.
    random_state: the same number gives the same net.
    verbose: print a line now and then.
    """

    losses: ClassVar[dict[str, Any]]
    default_loss: ClassVar[str]
    n_iter_: int
    _chains: Chains

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Let the docstrings of the two estimators end with the parameters that they share, for `help`."""
        super().__init_subclass__(**kwargs)
        if MCNet in cls.__bases__ and cls.__doc__:
            shared = inspect.cleandoc(MCNet.__doc__ or "").split("\n\n", 1)[1]
            cls.__doc__ = f"{inspect.cleandoc(cls.__doc__)}\n{shared}\n"

    def __init__(
        self,
        hidden_layer_sizes: Any = (32,),
        activation: str = "tanh",
        *,
        loss: str | Callable[..., Any] = "auto",
        sigma: Any = 0.03,
        epsilon: float = 0.0,
        n_s: Any = 50,
        signal_norm: bool = True,
        temperature: Any = 0.0,
        max_iter: int = 10_000,
        partial_fit_iter: int = 100,
        batch_size: Any = "full",
        tol: float = 1e-2,
        n_iter_no_change: Any = 1000,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        chains: int = 1,
        warm_start: bool = False,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.loss = loss
        self.sigma = sigma
        self.epsilon = epsilon
        self.n_s = n_s
        self.signal_norm = signal_norm
        self.temperature = temperature
        self.max_iter = max_iter
        self.partial_fit_iter = partial_fit_iter
        self.batch_size = batch_size
        self.tol = tol
        self.n_iter_no_change = n_iter_no_change
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.chains = chains
        self.warm_start = warm_start
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "MCNet":
        """Train a new net, or with `warm_start` the one there is, for max_iter steps at most."""
        course = Course(self.max_iter, self.n_iter_no_change, bool(self.early_stopping))
        if self.warm_start and hasattr(self, "coefs_"):
            course = replace(course, params=self._params, chains=self._chains._replace(states=None))
        if not self._fit(X, y, sample_weight, course).outcome.is_converged:
            warnings.warn(
                f"max_iter={self.max_iter} steps are made, and never n_iter_no_change={self.n_iter_no_change} of them "
                "without progress: raise max_iter, or set n_iter_no_change=inf if so many steps are what you want",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    def _go_on(self, X: Any, y: Any, sample_weight: Any, **coding: Any) -> None:
        """Make the steps of a `partial_fit`."""
        course = Course(self.partial_fit_iter)
        if hasattr(self, "coefs_"):
            course = replace(course, params=self._params, chains=self._chains, adds=True)
        fitted = self._fit(X, y, sample_weight, course, **coding)
        if fitted.outcome.is_frozen and fitted.steps < course.steps:
            warnings.warn(
                f"only {fitted.steps} of partial_fit_iter={course.steps} steps are made, then sigma is too small to "
                "change the weights: set a larger n_s before the first call, or go on from these weights with the "
                "first sigma by fit with warm_start=True",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _fit(self, X: Any, y: Any, sample_weight: Any, course: Course, **coding: Any) -> Fitted:
        check_parameters(self, self.losses)
        goes_on = course.params is not None
        new = copy(self)  # a fit that fails changes nothing, not even n_features_in_
        X, y = new._checked(X, y, reset=not goes_on)
        weight = _checked_weight(sample_weight, X)
        coded = new._coded(y, goes_on, **coding)
        net = MLP((X.shape[1], *widths(self.hidden_layer_sizes), new._num_outputs(coded)), self.activation)
        if goes_on:
            self._check_same(net)
            X = X.astype(self.coefs_[0].dtype)
        job = Job(self, net, new._task, is_flat=np.ndim(y) == 1)
        fitted = fit_chains(job, Samples(X, coded, weight), course, check_random_state(self.random_state))
        new._keep(fitted, net, course.adds)
        self.__dict__ = new.__dict__
        return fitted

    def _check_same(self, net: MLP) -> None:
        if net != self._net:
            old, new = (f"{one.widths}, {one.activation}" for one in (self._net, net))
            raise ValueError(f"the net must stay {old} to go on with its weights, got {new}")

    @property
    def _params(self) -> Params:
        return as_params(self.coefs_, self.intercepts_)

    def _keep(self, fitted: Fitted, net: MLP, adds: bool) -> None:
        """Set the fitted attributes; the curves of `partial_fit` add to those before."""
        outcome, chains = fitted.outcome, fitted.chains
        layers = outcome.params["layers"]
        self.n_outputs_ = net.widths[-1]
        self.coefs_ = [layer["weight"] for layer in layers]
        self.intercepts_ = [layer["bias"] for layer in layers]
        steps_before = self.n_iter_ if adds else 0
        for curve, name in CURVES.items():
            new = np.asarray([row[name] for row in fitted.rows])
            new = new + steps_before if name == "step" else new
            setattr(self, curve, np.concatenate([getattr(self, curve), new]) if adds else new)
        self.n_iter_ = steps_before + fitted.steps
        self.loss_ = outcome.loss
        self.best_loss_ = min(outcome.loss, float(self.loss_curve_.min()))
        self.sigma_ = chains.sigma
        self.validation_scores_ = np.asarray(fitted.scores) if fitted.scores else None
        self.best_validation_score_ = max(fitted.scores) if fitted.scores else None
        if chains.units is not None:
            self.target_mean_, self.target_scale_ = chains.units.centre, chains.units.spread
        self._net, self._chains = net, chains

    def _outputs(self, X: Any) -> np.ndarray:
        check_is_fitted(self, "coefs_")
        X = validate_data(self, X, dtype=(np.float64, np.float32), reset=False)
        return outputs_for(self._net, self._params, X, self._chains.units)


def _checked_weight(sample_weight: Any, X: np.ndarray) -> np.ndarray | None:
    if sample_weight is None:
        return None
    weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    if not weight.any():  # older scikit-learn lets them through
        raise ValueError("sample_weight must not be zero for every sample, got all zero")
    # Only ratios matter, but float32 ends at 1e38; a power of two changes no digit.
    return np.ldexp(weight, 1 - np.frexp(weight.max())[1])


class MCClassifier(ClassifierMixin, MCNet):
    """A classifier trained by aMC: binary, of several classes, or with several labels per sample.

    loss: "cross_entropy" ("auto"), "squared_error" (of the probabilities), "zero_one" (the fraction of wrong answers),
        or a function of the classes' numbers 0, 1, ... and the probabilities, to be minimised.
    """

    losses: ClassVar[dict[str, Any]] = CLASSIFIER_LOSSES
    default_loss: ClassVar[str] = "cross_entropy"
    classes_: np.ndarray
    _task: str

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> "MCClassifier":
        """Go on for partial_fit_iter steps from where the chains stand; the first call must name all classes."""
        if classes is None and not hasattr(self, "coefs_") and type_of_target(y) != "multilabel-indicator":
            raise ValueError("classes must be given to the first call of partial_fit, got None")
        self._go_on(X, y, sample_weight, classes=classes)
        return self

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Return the logarithm of `predict_proba`."""
        from scipy.special import log_expit, log_softmax

        outputs = self._outputs(X)
        return log_expit(outputs) if self._task == MULTILABEL else log_softmax(outputs, axis=1)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probability of each class, or of each label on its own."""
        return np.exp(self.predict_log_proba(X))

    def predict(self, X: Any) -> np.ndarray:
        """Return the most probable class, or which labels are more probable than not."""
        outputs = self._outputs(X)
        if self._task == MULTILABEL:
            return (outputs > 0).astype(self.classes_.dtype)
        return self.classes_[np.argmax(outputs, axis=1)]

    def _checked(self, X: Any, y: Any, reset: bool) -> tuple[np.ndarray, np.ndarray]:
        X, y = validate_data(self, X, y, dtype=(np.float64, np.float32), multi_output=True, reset=reset)
        check_classification_targets(y)
        kind = type_of_target(y)
        if kind == "multiclass-multioutput":
            raise ValueError(f"y must be one class per sample or labels of 0 and 1, got {kind} of shape {y.shape}")
        task = MULTILABEL if kind == "multilabel-indicator" else MULTICLASS
        if not reset and task != self._task:
            raise ValueError(f"y must be {self._task} as in the first call, got {task}")
        self._task = task
        return X, y if self._task == MULTILABEL else column_or_1d(y, warn=True)

    def _coded(self, y: np.ndarray, goes_on: bool, classes: Any = None) -> np.ndarray:
        """Return the numbers of the classes as a column, or the labels; learn what classes there are."""
        if self._task == MULTILABEL:
            self.classes_ = self.classes_ if goes_on else np.arange(y.shape[1])
            return y.astype(np.int32)
        if not goes_on:
            self.classes_ = unique_labels(y) if classes is None else unique_labels(classes)
        elif classes is not None and not np.array_equal(self.classes_, unique_labels(classes)):
            raise ValueError(f"classes must be those of the first call, {self.classes_}, got {classes}")
        unknown = np.setdiff1d(y, self.classes_)
        if len(unknown):
            raise ValueError(f"y must hold the classes {self.classes_} only, got {unknown}")
        return np.searchsorted(self.classes_, y).astype(np.int32)[:, None]

    def _num_outputs(self, coded: np.ndarray) -> int:
        return coded.shape[1] if self._task == MULTILABEL else len(self.classes_)


class MCRegressor(RegressorMixin, MCNet):
    """A regressor trained by aMC, for one target or several.

    The net works on targets of mean 0 and variance 1, so that sigma means the same for all targets; a prediction is
    its output times `target_scale_` plus `target_mean_`.

    loss: "squared_error" ("auto"), "absolute_error", or a function of the targets and the predictions, in the targets'
        own units, to be minimised.
    """

    losses: ClassVar[dict[str, Any]] = REGRESSOR_LOSSES
    default_loss: ClassVar[str] = "squared_error"
    _task = REGRESSION

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> "MCRegressor":
        """Go on for partial_fit_iter steps from where the chains stand."""
        self._go_on(X, y, sample_weight)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Return the predicted targets, in the shape that they had in `fit`."""
        outputs = self._outputs(X)
        return outputs[:, 0] if self._is_flat else outputs

    def _checked(self, X: Any, y: Any, reset: bool) -> tuple[np.ndarray, np.ndarray]:
        X, y = validate_data(self, X, y, dtype=(np.float64, np.float32), multi_output=True, y_numeric=True, reset=reset)
        self._is_flat = y.ndim == 1
        return X, y.astype(np.float64)

    def _coded(self, y: np.ndarray, goes_on: bool) -> np.ndarray:
        return y[:, None] if y.ndim == 1 else y

    def _num_outputs(self, coded: np.ndarray) -> int:
        return coded.shape[1]
