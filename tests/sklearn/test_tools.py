"""The estimators inside scikit-learn's own tools."""

import copy
import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler


def test_pickle_copy_and_clone(classifier, classified, same_net):
    net = classifier(partial_fit_iter=20).partial_fit(*classified, classes=["cold", "mild", "warm"])
    again = pickle.loads(pickle.dumps(net))  # noqa: S301 (our own)
    for other in (again, copy.deepcopy(net)):
        assert same_net(net, other)
        assert (other.predict(classified[0]) == net.predict(classified[0])).all()
    # A pickled estimator goes on as the one it was made from does.
    assert same_net(again.partial_fit(*classified), net.partial_fit(*classified))
    assert clone(net).get_params() == net.get_params()
    assert not hasattr(clone(net), "coefs_")


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_grid_search_in_a_pipeline(classifier, classified, n_jobs):
    x, y = classified
    pipeline = make_pipeline(StandardScaler(), classifier(max_iter=300))
    grid = {"mcclassifier__sigma": [1e-4, 0.1]}
    search = GridSearchCV(pipeline, grid, cv=2, n_jobs=n_jobs, error_score="raise").fit(x, y)
    assert search.best_params_ == {"mcclassifier__sigma": 0.1}
    assert search.score(x, y) > 0.8


def test_cross_validation_and_calibration(classifier, classified):
    x, y = classified
    assert np.mean(cross_val_score(classifier(), x, y, cv=2)) > 0.7
    calibrated = CalibratedClassifierCV(classifier(), cv=2).fit(x, y)
    assert calibrated.predict_proba(x).shape == (60, 3)


def test_feature_names_are_kept_and_compared(regressor, measured):
    pandas = pytest.importorskip("pandas")
    x, y = measured
    frame = pandas.DataFrame(x, columns=["a", "b", "c"])
    net = regressor(max_iter=5).fit(frame, pandas.Series(y))
    assert net.feature_names_in_.tolist() == ["a", "b", "c"]
    with pytest.raises(ValueError, match="feature names"):
        net.predict(frame[["b", "a", "c"]])
