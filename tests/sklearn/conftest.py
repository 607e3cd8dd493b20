"""One small problem of each kind, of one shape, so that its compiled programs serve many tests."""

import numpy as np
import pytest

from gradless.sklearn import MCClassifier, MCRegressor

RNG = np.random.default_rng(7)
X = RNG.standard_normal((60, 3))
CLASSES = np.array(["cold", "mild", "warm"])[np.digitize(X[:, 0] - X[:, 1], [-0.7, 0.7])]
TARGETS = 100 + 20 * np.tanh(X[:, 0]) - 10 * X[:, 1]
SMALL = {"hidden_layer_sizes": (6,), "max_iter": 600, "n_iter_no_change": np.inf, "random_state": 0}


@pytest.fixture
def classified():
    return X, CLASSES


@pytest.fixture
def measured():
    return X, TARGETS


@pytest.fixture
def classifier():
    return lambda **changes: MCClassifier(**SMALL | changes)


@pytest.fixture
def regressor():
    return lambda **changes: MCRegressor(**SMALL | changes)


@pytest.fixture
def same_net():
    """Whether two estimators are one net bit for bit."""

    def compare(a, b):
        pairs = zip([*a.coefs_, *a.intercepts_], [*b.coefs_, *b.intercepts_], strict=True)
        return all(one.tobytes() == other.tobytes() for one, other in pairs)

    return compare
