"""What a fit leaves behind, what it depends on, and what it goes on from."""

import re
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import log_loss, mean_squared_error, zero_one_loss
from sklearn.preprocessing import StandardScaler

import gradless as gl
from gradless.engine import loop
from gradless.sklearn import MCClassifier, MCRegressor


def test_iris_is_learnt_with_the_defaults():
    x, y = load_iris(return_X_y=True)
    net = MCClassifier(random_state=0).fit(StandardScaler().fit_transform(x), y)
    assert net.score(StandardScaler().fit_transform(x), y) >= 0.98  # linear classifiers get 0.97
    assert net.n_iter_ < net.max_iter


def test_the_loss_is_that_of_the_fitted_net(classifier, regressor, classified, measured):
    x, y = classified
    net = classifier().fit(x, y)
    # The chain and the prediction sum 60 terms in different orders; the logits are of order 10.
    np.testing.assert_allclose(net.loss_, log_loss(y, net.predict_proba(x)), rtol=1e-10)
    np.testing.assert_allclose(np.log(net.predict_proba(x)), net.predict_log_proba(x), rtol=1e-12)
    x, y = measured
    net = regressor().fit(x, y)
    np.testing.assert_allclose(net.loss_, mean_squared_error(y, net.predict(x)), rtol=1e-10)
    assert net.score(x, y) > 0.9


def test_what_a_fit_leaves_is_numpy(classifier, classified):
    x, y = classified
    net = classifier().fit(x, y)
    assert [one.shape for one in net.coefs_] == [(3, 6), (6, 3)]
    assert [one.shape for one in net.intercepts_] == [(6,), (3,)]
    curves = [net.step_curve_, net.loss_curve_, net.acceptance_curve_, net.sigma_curve_]
    assert {type(one) for one in [*net.coefs_, *net.intercepts_, *curves]} == {np.ndarray}
    assert len({len(curve) for curve in curves}) == 1
    assert (net.step_curve_[0], net.step_curve_[-1], net.n_iter_) == (0, 600, 600)
    assert (np.diff(net.loss_curve_) <= 0).all()  # at zero temperature the loss never rises
    assert ((net.acceptance_curve_[1:] >= 0) & (net.acceptance_curve_[1:] <= 1)).all()
    assert net.best_loss_ == net.loss_ == net.loss_curve_[-1]
    assert net.classes_.tolist() == ["cold", "mild", "warm"]
    assert set(net.predict(x)) <= set(net.classes_)


def test_the_same_random_state_gives_the_same_net(classifier, classified, same_net):
    one = classifier(random_state=3).fit(*classified)
    assert same_net(one, classifier(random_state=3).fit(*classified))
    assert not same_net(one, classifier(random_state=4).fit(*classified))
    state = np.random.RandomState(5)
    first, second = classifier(random_state=state).fit(*classified), classifier(random_state=state).fit(*classified)
    assert same_net(first, classifier(random_state=np.random.RandomState(5)).fit(*classified))
    assert not same_net(first, second)
    assert not same_net(classifier(random_state=None).fit(*classified), classifier(random_state=None).fit(*classified))


def test_minibatches_are_drawn_from_rows_as_often_as_they_are_given(regressor, measured, same_net):
    x, y = measured
    repeated = np.repeat(np.arange(60), np.arange(60) % 3)
    small = {"batch_size": 10, "max_iter": 100}
    as_given = regressor(**small).fit(x[repeated], y[repeated])
    shuffled = np.random.default_rng(0).permutation(repeated)
    assert same_net(as_given, regressor(**small).fit(x[shuffled], y[shuffled]))
    once = np.unique(repeated)
    assert not same_net(as_given, regressor(**small).fit(x[once], y[once]))
    weight = np.arange(60) % 3 + 1
    weighted = regressor(**small).fit(x, y, sample_weight=weight)
    assert same_net(weighted, regressor(**small).fit(x[::-1], y[::-1], sample_weight=weight[::-1]))
    assert not same_net(weighted, regressor(**small).fit(x, y))
    with pytest.raises(ValueError, match="batch_size must be at least 2 with sample weights, got 1"):
        regressor(batch_size=1).fit(x, y, sample_weight=weight)
    regressor(batch_size=1, max_iter=5).fit(x, y, sample_weight=np.full(60, 2.0))  # which are no weights


def test_weights_are_repetitions_and_order_is_nothing(regressor, measured, same_net):
    x, y = measured
    weight = np.arange(60) % 3
    repeated = np.random.default_rng(0).permutation(np.repeat(np.arange(60), weight))
    small = {"max_iter": 100}
    weighted = regressor(**small).fit(x, y, sample_weight=weight)
    assert same_net(weighted, regressor(**small).fit(x[repeated], y[repeated]))
    kept = weight > 0
    assert not same_net(weighted, regressor(**small).fit(x[kept], y[kept], sample_weight=weight[kept] % 2 + 1))


@pytest.mark.parametrize("settings", [{}, {"epsilon": 0.1, "signal_norm": False}, {"batch_size": 10}, {"chains": 2}])
def test_partial_fits_are_one_fit_in_pieces(regressor, measured, same_net, settings):
    whole = regressor(max_iter=90, **settings).fit(*measured)
    pieces = regressor(partial_fit_iter=30, **settings)
    for _ in range(3):
        pieces.partial_fit(*measured)
    assert same_net(whole, pieces)
    assert pieces.n_iter_ == 90
    assert pieces.step_curve_[-1] == 90
    assert pieces.sigma_curve_[-1] == whole.sigma_curve_[-1]


def test_partial_fit_goes_on_with_other_data_and_knows_its_loss_there(classifier, classified):
    x, y = classified
    other = x + 0.5
    net = classifier(partial_fit_iter=300).partial_fit(x, y, classes=np.unique(y))
    before = log_loss(y, net.predict_proba(other))
    net.partial_fit(other, y)
    np.testing.assert_allclose(net.loss_, log_loss(y, net.predict_proba(other)), rtol=1e-10)
    assert net.loss_ < before


def test_the_steps_of_chains_that_begin_anew_add_up(regressor, measured):
    net = regressor(partial_fit_iter=60).partial_fit(*measured)
    net.set_params(chains=2).partial_fit(*measured)
    assert (np.diff(net.step_curve_) >= 0).all()
    assert net.step_curve_[-1] == net.n_iter_ == 120


def test_with_another_sigma_partial_fit_goes_on_from_that_one(regressor, measured, same_net):
    nets = [regressor(partial_fit_iter=60, epsilon=0.1, n_s=5).partial_fit(*measured) for _ in range(2)]
    assert nets[0].sigma_curve_[-1] < 0.03
    nets[1].set_params(sigma=np.float64(0.03))  # is what it was
    assert same_net(*(net.partial_fit(*measured) for net in nets))
    net, before = nets[0], nets[0].coefs_[0]
    net.set_params(sigma=1e-9, n_s=np.inf).partial_fit(*measured)
    assert (net.sigma_curve_[-1], net.sigma_, net.n_iter_) == (1e-9, 1e-9, 180)
    np.testing.assert_allclose(net.coefs_[0], before, atol=1e-6)  # mu, too, begins anew
    assert net.set_params(sigma="auto").partial_fit(*measured).sigma_ > 1e-9


def test_partial_fit_of_frozen_chains_says_so(regressor, measured):
    net = regressor(n_s=1, partial_fit_iter=2000)
    with pytest.warns(
        ConvergenceWarning, match=r"of partial_fit_iter=2000 steps are made, .* fit with warm_start=True"
    ):
        net.partial_fit(*measured)
    with pytest.warns(ConvergenceWarning, match="of partial_fit_iter=2000 steps"):
        net.partial_fit(*measured)
    net.set_params(warm_start=True, n_s=50).fit(*measured)  # is what it says to do
    assert net.sigma_curve_[0] == 0.03
    assert net.loss_ < net.loss_curve_[0]


@pytest.mark.parametrize("num_first", [1, 60])
def test_units_are_taken_anew_when_the_first_targets_were_constant(regressor, measured, num_first):
    x, y = measured
    net = regressor(partial_fit_iter=100).partial_fit(x[:num_first], np.full(num_first, 0.1))
    before = net.predict(x)
    net.set_params(partial_fit_iter=600).partial_fit(x, 1000 * y)
    first = net.loss_curve_[net.step_curve_ == 100][-1]  # of the new chain: the same net in other units
    np.testing.assert_allclose(first, mean_squared_error(1000 * y, before), rtol=1e-10)
    assert net.target_scale_ == pytest.approx(1000 * y.std(), rel=1e-12)
    assert net.score(x, 1000 * y) > 0.7  # in units of 1 it would be below -10: 600 moves of 0.03 are far from 100,000
    scale = net.target_scale_
    assert (net.partial_fit(x, 5 * y).target_scale_ == scale).all()  # once known, units stay


def test_a_fit_that_fails_changes_nothing(classifier, regressor, classified, measured):
    x, y = classified
    net = classifier(max_iter=20).fit(x, y)
    before, attributes = net.predict(x), dict(vars(net))
    labels = np.stack([x[:, 0] > 0, x[:, 1] > 0], axis=1).astype(int)
    with pytest.raises(ValueError, match=r"(?i)sample.weight.*zero"):
        net.fit(x[:, :2], labels, sample_weight=np.zeros(60))
    assert vars(net) == attributes
    assert (net.predict(x) == before).all()
    x, y = measured
    net = regressor(max_iter=20).fit(x, y)
    with pytest.raises(ValueError, match="the net must stay"):
        net.partial_fit(x, x[:, :2])
    assert net.predict(x).shape == (60,)


def test_warm_start_begins_where_the_last_fit_ended(regressor, measured):
    x, y = measured
    net = regressor(warm_start=True).fit(x, y)
    end = net.loss_
    net.fit(x, y)
    assert net.loss_curve_[0] == end
    assert net.loss_ < end
    other = 7 * y + 1000  # has other units, in which the net must say the same
    begins_at = mean_squared_error(other, net.predict(x))
    np.testing.assert_allclose(net.fit(x, other).loss_curve_[0], begins_at, rtol=1e-10)
    cold = regressor().fit(x, y)
    assert cold.fit(x, y).loss_ == end


@pytest.mark.parametrize("go_on", [lambda net: net.fit, lambda net: net.set_params(chains=2).partial_fit])
def test_a_chain_that_begins_where_another_ended_tries_other_moves(regressor, measured, go_on):
    net = regressor(
        loss=lambda y, z: 0 * z.mean(), signal_norm=False, warm_start=True, max_iter=20, partial_fit_iter=20
    )
    nets = [net.fit(*measured).coefs_[0], net.fit(*measured).coefs_[0], go_on(net)(*measured).coefs_[0]]
    one, other = np.diff(nets, axis=0)  # every move is a tie
    assert abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < 0.9  # of 18 numbers; of the same moves it is 1


def test_a_net_can_be_trained_on_the_number_of_wrong_answers_with_hard_thresholds(classifier, classified):
    x, y = classified
    net = classifier(loss="zero_one", activation="step", sigma=0.3, max_iter=3000).fit(x, y)
    assert net.loss_ == pytest.approx(zero_one_loss(y, net.predict(x)), abs=1e-12)
    assert net.loss_ < 0.05


def test_any_metric_is_a_loss_and_python_makes_the_moves_of_the_compiled_one(classifier, classified, same_net):
    compiled = classifier(loss=lambda y, p: (p.argmax(axis=1) != y).mean(), max_iter=100).fit(*classified)
    called = classifier(loss=lambda y, p: zero_one_loss(y, p.argmax(axis=1)), max_iter=100).fit(*classified)
    assert compiled.loss_ == pytest.approx(called.loss_, abs=1e-7)  # JAX takes the mean of truth values in float32
    assert same_net(compiled, called)
    assert compiled.loss_ < compiled.loss_curve_[0]


def test_a_metric_of_a_regressor_sees_the_targets_own_units(regressor, measured):
    x, y = measured
    seen = []

    def metric(y_true, predicted):
        seen.append((np.array(y_true), np.array(predicted)))
        return float(np.max(np.abs(y_true - predicted)))

    net = regressor(loss=metric, max_iter=40).fit(x, y)
    assert (seen[-1][0] == y).all()
    np.testing.assert_allclose(net.loss_, np.max(np.abs(y - net.predict(x))), rtol=1e-10)


def catches(y, p):
    try:
        return log_loss(y, p)
    except Exception:
        return 1.0


def writes(y, p, sample_weight):
    value = log_loss(y, p, sample_weight=sample_weight)
    y[:], p[:], sample_weight[:] = 0, 0.5, 1
    return value


@pytest.mark.parametrize(("metric", "weight"), [(catches, None), (writes, np.arange(60.0))])
def test_a_metric_may_catch_errors_and_write_into_its_arrays(classifier, classified, metric, weight):
    x, y = classified
    net = classifier(loss=metric, max_iter=100).fit(x, y, sample_weight=weight)
    assert net.loss_ < net.loss_curve_[0]
    np.testing.assert_allclose(net.loss_, log_loss(y, net.predict_proba(x), sample_weight=weight), rtol=1e-10)


def test_what_a_metric_raises_on_the_way_comes_out_as_it_is(classifier, classified):
    calls = []

    def metric(y, p):
        calls.append(float(p[0, 0]))
        if len(calls) > 20:
            raise KeyError("mine")
        return 1.0

    with pytest.raises(KeyError, match="mine"):
        classifier(loss=metric).fit(*classified)
    assert classifier(loss=lambda y, p: float(p[0, 0]), max_iter=5).fit(*classified).n_iter_ == 5


@pytest.mark.parametrize(
    "settings", [{"chains": 2}, {"sigma": "auto"}, {"batch_size": 10}, {"early_stopping": True, "batch_size": 10}]
)
def test_what_a_metric_raises_just_once_ends_the_fit_wherever_it_is(classifier, classified, settings):
    """At the starting point, in the trials of sigma, on the way and in the last look at the loss."""
    calls, raises_at = [], 0

    def metric(y, p):
        calls.append(float(p[0, 0]))
        if len(calls) == raises_at:
            raise KeyError("mine")
        return 1.0

    net = classifier(loss=metric, max_iter=5, **settings).fit(*classified)
    number = len(calls)
    for raises_at in (1, 2, 3, number // 2, number):  # noqa: B007, the metric reads it
        calls.clear()
        with pytest.raises(KeyError, match="mine"):
            classifier(loss=metric, max_iter=5, **settings).fit(*classified)
    raises_at = 0
    assert net.fit(*classified).n_iter_ == 5


def test_of_two_fits_at_a_time_the_one_that_fails_leaves_the_other_alone(classifier, classified, same_net):
    """They share a compiled program; the good one is held in the middle until the metric has failed for the other."""
    x, y = classified
    of_good, of_bad = np.where(np.arange(60) == 0, "cold", y), np.where(np.arange(60) == 0, "warm", y)
    calls, is_under_way, has_failed = {0: 0, 2: 0}, threading.Event(), threading.Event()

    def metric(y_true, p):
        value, first = log_loss(y_true, p), int(y_true[0])
        calls[first] += 1
        if first == 2 and calls[2] > 20:
            is_under_way.wait(60)
            has_failed.set()
            raise KeyError("mine")
        if first == 0 and calls[0] > 20:
            is_under_way.set()
            has_failed.wait(60)
        return value

    def fit(labels):
        return classifier(loss=metric, max_iter=300).fit(x, labels)

    with ThreadPoolExecutor(2) as pool:
        bad, good = pool.submit(fit, of_bad), pool.submit(fit, of_good)
        with pytest.raises(KeyError, match="mine"):
            bad.result()
        assert same_net(good.result(), fit(of_good))


def test_the_best_of_several_chains_is_kept(regressor, measured, same_net):
    many = regressor(chains=3).fit(*measured)
    assert many.loss_ <= regressor().fit(*measured).loss_  # chain 0 is among them
    assert many.loss_curve_.shape == many.step_curve_.shape


def test_early_stopping_returns_the_net_of_the_best_score(classifier, classified):
    x, y = classified
    net = classifier(early_stopping=True, validation_fraction=0.3, n_iter_no_change=200, max_iter=5000).fit(x, y)
    assert net.best_validation_score_ == net.validation_scores_.max()
    assert net.n_iter_ < 5000
    assert net.n_iter_ == 20 * len(net.validation_scores_)  # a look every tenth of n_iter_no_change
    # 18 of 60 samples are set aside: a score is a number of eighteenths.
    assert np.allclose(net.validation_scores_ * 18, np.round(net.validation_scores_ * 18))


def test_early_stopping_with_repeated_rows(classifier, same_net):
    x = np.repeat([[0.0, 0, 0], [0, 1, 0], [1, 0, 0], [1, 1, 0], [2, 2, 0]], 26, axis=0)
    y = np.repeat([0, 1, 1, 0, 2], 26)  # of class 2 there is one different row
    net = classifier(early_stopping=True, max_iter=1000, sigma=0.1).fit(x, y)
    assert net.score(x, y) == 1
    assert net.best_validation_score_ == 1
    small = {"early_stopping": True, "max_iter": 20}
    weighted = classifier(**small).fit(x, y, sample_weight=np.arange(130) % 2)
    assert same_net(weighted, classifier(**small).fit(x[1::2], y[1::2]))  # a sample of weight 0 is none


def test_one_sample_does_not_tell_the_score_of_a_regressor(regressor, measured):
    x, y = measured
    with pytest.raises(ValueError, match=r"validation_fraction must set aside 2 samples at least, got 0.1 of 8"):
        regressor(early_stopping=True).fit(x[:8], y[:8])
    assert np.isfinite(regressor(early_stopping=True, max_iter=20).fit(x[:11], y[:11]).validation_scores_).all()


def test_a_fit_that_is_cut_off_says_so(classifier, classified):
    with pytest.warns(ConvergenceWarning, match="max_iter=100 steps"):
        classifier(max_iter=100, n_iter_no_change=1000).fit(*classified)


def test_sigma_auto_chooses_from_the_grid(classifier, classified):
    net = classifier(sigma="auto").fit(*classified)
    assert 1e-4 <= net.sigma_ <= 1
    assert net.loss_ < classifier(sigma=1e-4).fit(*classified).loss_


def test_several_targets_and_several_labels(regressor, classifier, measured):
    x, y = measured
    two = np.stack([y, 300 - 2 * y], axis=1)
    net = regressor(max_iter=3000).fit(x, two)
    assert net.predict(x).shape == (60, 2)
    assert net.score(x, two) > 0.8
    labels = np.stack([x[:, 0] > 0, x[:, 1] > 0.5], axis=1).astype(int)
    net = classifier(max_iter=2000).fit(x, labels)
    assert net.predict_proba(x).shape == (60, 2)
    assert net.score(x, labels) > 0.9


def test_float32_stays_float32(classifier, classified):
    x, y = classified
    net = classifier(max_iter=50).fit(x.astype(np.float32), y)
    assert {one.dtype for one in [*net.coefs_, *net.intercepts_]} == {np.dtype(np.float32)}
    assert net.predict_proba(x.astype(np.float32)).dtype == np.float32


def test_only_ratios_of_weights_matter(classifier, classified, same_net):
    x, y = classified[0].astype(np.float32), classified[1]
    weight = np.arange(1.0, 61)
    plain = classifier(max_iter=50).fit(x, y, sample_weight=weight)
    for power in (-1000, -200, 200, 1000):  # 2^128 is beyond float32, and 60 times 2^1020 beyond float64
        assert same_net(plain, classifier(max_iter=50).fit(x, y, sample_weight=np.ldexp(weight, power)))


def test_float32_keeps_the_digits_of_large_targets(regressor, measured):
    x, y = measured[0].astype(np.float32), measured[0][:, 0] + 1e8
    net = regressor().fit(x, y)
    assert {one.dtype for one in [*net.coefs_, *net.intercepts_]} == {np.dtype(np.float32)}
    np.testing.assert_allclose(mean_squared_error(y, net.predict(x)), net.loss_, rtol=1e-4)  # of a loss in float32
    assert net.score(x, y) > 0.9
    again = regressor(early_stopping=True).fit(x, y)
    assert again.best_validation_score_ > 0.5


WRONG = [
    ({"hidden_layer_sizes": (4, 0)}, "hidden_layer_sizes must be positive whole numbers, one per hidden layer, got (4"),
    ({"activation": "gelu"}, "activation must be one of tanh, relu, sigmoid, sine, step, identity, got 'gelu'"),
    ({"loss": "hinge"}, "loss must be a function or one of auto, cross_entropy, squared_error, zero_one, got 'hinge'"),
    ({"loss": lambda y, p: p}, "loss must return one number, got an array of shape (60, 3)"),
    ({"loss": lambda y, p: None}, "loss must return one number, got None"),
    ({"loss": lambda y, p: "small"}, "loss must return one number, got 'small'"),
    ({"loss": lambda y, p: float("nan")}, "the loss at the starting point is nan"),
    ({"sigma": -1.0}, "sigma must be positive, got -1.0"),
    ({"sigma": "big"}, "sigma must be positive or \"auto\", got 'big'"),
    ({"epsilon": 2}, "epsilon must be between -1 and 1, got 2"),
    ({"activation": ["tanh"]}, "activation must be one of tanh, relu, sigmoid, sine, step, identity, got ['tanh']"),
    ({"sigma": np.array([0.1, 0.2])}, "sigma must be one number, got shape (2,)"),
    ({"epsilon": np.array([0.0, 0.1]), "chains": 2}, "epsilon must be one number, got shape (2,)"),
    ({"n_s": [50, 100], "chains": 2}, "n_s must be one number, got shape (2,)"),
    ({"temperature": [0.0, 0.1], "chains": 2}, "temperature must be one number, got shape (2,)"),
    ({"temperature": gl.anneal([1, 2], 0.1, 9), "chains": 2}, "temperature.start must be one number, got shape (2,)"),
    ({"batch_size": np.array([8, 9])}, 'batch_size must be a whole number of at least 1 or "full", got array([8, 9])'),
    (
        {"loss": np.array(["auto", "zero_one"])},
        "loss must be a function or one of auto, cross_entropy, squared_error, ",
    ),
    ({"tol": [0.1, 0.2]}, "tol must be one number, got shape (2,)"),
    ({"n_s": 0}, "n_s must be a whole number of at least 1, or inf, got 0"),
    ({"temperature": -1}, "temperature must be zero or positive, got -1"),
    ({"max_iter": 0}, "max_iter must be a whole number of at least 1, got 0"),
    ({"batch_size": "half"}, "batch_size must be a whole number of at least 1 or \"full\", got 'half'"),
    ({"validation_fraction": 1.0}, "validation_fraction must be above 0 and below 1, got 1.0"),
    ({"tol": None}, "tol must be zero or positive, got None"),
    ({"n_iter_no_change": 0.5}, "n_iter_no_change must be a whole number of at least 1, or inf, got 0.5"),
    ({"warm_start": "yes"}, "warm_start must be True or False, got 'yes'"),
]


@pytest.mark.parametrize(("wrong", "words"), WRONG, ids=[words[:30] for _, words in WRONG])
def test_a_wrong_parameter_is_refused_in_fit_in_one_line(classifier, classified, wrong, words):
    net = classifier(**wrong)
    with pytest.raises(ValueError, match=re.escape(words)) as caught:
        net.fit(*classified)
    assert "\n" not in str(caught.value)


def test_an_array_of_settings_is_refused_by_a_regressor_that_goes_on(regressor, measured):
    net = regressor(chains=2, partial_fit_iter=20).partial_fit(*measured)
    for name in ("sigma", "epsilon", "n_s", "temperature"):
        with pytest.raises(ValueError, match=rf"^{name} must be one number, got shape \(2,\)$"):
            regressor(chains=2, **{name: [1, 1]}).fit(*measured)
    with pytest.raises(ValueError, match=r"^epsilon must be one number, got shape \(2,\)$"):
        net.set_params(epsilon=np.array([0.0, 0.1])).partial_fit(*measured)
    assert net.set_params(epsilon=np.array(0.0), temperature=np.float32(0.1)).partial_fit(*measured).n_iter_ == 40


def test_wrong_use_is_refused(classifier, classified):
    x, y = classified
    with pytest.raises(ValueError, match="classes must be given to the first call of partial_fit, got None"):
        classifier().partial_fit(x, y)
    with pytest.raises(ValueError, match="loss must have an argument sample_weight when sample weights are given"):
        classifier(loss=lambda y, p: 0.0).fit(x, y, sample_weight=np.ones(60))
    with pytest.raises(ValueError, match=r"(?i)sample.weight.*zero"):
        classifier().fit(x, y, sample_weight=np.zeros(60))
    net = classifier(warm_start=True, max_iter=5).fit(x, y)
    with pytest.raises(ValueError, match=r"y must hold the classes .* only, got .*hot"):
        net.fit(x, np.where(y == "warm", "hot", y))
    with pytest.raises(ValueError, match=r"the net must stay \(3, 6, 3\), tanh to go on with its weights, got \(3, 7"):
        net.set_params(hidden_layer_sizes=7).fit(x, y)
    with pytest.raises(ValueError, match="y must be multiclass as in the first call, got multilabel"):
        net.fit(x, np.eye(3, dtype=int)[np.arange(60) % 3])
    assert net.classes_.tolist() == ["cold", "mild", "warm"]  # what was refused has changed nothing
    with pytest.raises(ValueError, match="one class per sample or labels of 0 and 1, got multiclass-multioutput"):
        classifier().fit(x, np.stack([np.arange(60) % 3, np.arange(60) % 4], axis=1))
    assert MCRegressor().loss == "auto"


@pytest.mark.parametrize("loss", ["squared_error", "absolute_error"])
@pytest.mark.parametrize("unit", [2.0**-64, 2.0**64])  # whose squares are beyond float32
def test_tiny_and_huge_targets_are_learnt_as_others_are(loss, unit):
    """A power of two changes no digit: the moves are the same, and the loss is in the targets' unit."""
    x = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
    given = {"hidden_layer_sizes": 4, "max_iter": 300, "n_iter_no_change": np.inf, "random_state": 0, "loss": loss}
    power = {"squared_error": 2, "absolute_error": 1}[loss]
    plain = MCRegressor(**given, temperature=1e-3).fit(x, x[:, 0].astype(float))
    scaled = MCRegressor(**given, temperature=1e-3 * unit**power).fit(x, unit * x[:, 0].astype(float))
    np.testing.assert_array_equal(scaled.acceptance_curve_, plain.acceptance_curve_)
    np.testing.assert_allclose(scaled.loss_curve_ / unit**power, plain.loss_curve_, rtol=1e-12)
    np.testing.assert_allclose(scaled.predict(x) / unit, plain.predict(x), rtol=1e-6)
    assert plain.loss_ < plain.loss_curve_[0]


def test_a_temperature_that_is_a_function_is_in_the_targets_unit_and_compiled_once():
    x = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
    given = {"hidden_layer_sizes": 4, "max_iter": 30, "n_iter_no_change": np.inf, "random_state": 0}

    def fitted(temperature, unit):
        return MCRegressor(**given, temperature=temperature).fit(x, unit * x[:, 0].astype(float))

    plain = fitted(lambda n: 1e-3 / (n + 1.0), 1.0)
    scaled = fitted(lambda n: 64 * 1e-3 / (n + 1.0), 8.0)
    np.testing.assert_array_equal(scaled.acceptance_curve_, plain.acceptance_curve_)

    def falling(n):
        return 1e-3 / (n + 1.0)

    fitted(falling, 1.0)
    before = sum(program._cache_size() for program in loop.advance.kept.values())
    fitted(falling, 3.0)  # another unit, which is data of the program
    fitted(falling, 3.0)
    assert sum(program._cache_size() for program in loop.advance.kept.values()) == before
