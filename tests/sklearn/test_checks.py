"""scikit-learn's own checks of an estimator, all of them."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from gradless.sklearn import MCClassifier, MCRegressor

# The checks train on noise for as long as they are let; scikit-learn's own tests ignore this warning too.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@parametrize_with_checks([MCClassifier(max_iter=1000)])
def test_scikit_learn_finds_nothing_wrong_with_the_classifier(estimator, check):
    check(estimator)


@pytest.mark.soak  # the same code but for the loss, and most of a minute to compile for every shape
@parametrize_with_checks([MCRegressor(max_iter=1000)])
def test_scikit_learn_finds_nothing_wrong_with_the_regressor(estimator, check):
    check(estimator)
