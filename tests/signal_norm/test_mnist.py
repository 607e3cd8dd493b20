"""The known answer for MNIST: lambda of the first layer of the paper's net."""

import jax
import numpy as np
import pytest

import gradless as gl
from gradless.data.store import DataUnavailable
from gradless.problems import make_problem


def test_lambda_of_the_first_layer_on_mnist():
    """The mean over images of the sum of squared pixel/255 is 87.81002, and its inverse root 0.106716."""
    try:
        problem = make_problem("mnist", {})
    except DataUnavailable as error:
        pytest.skip(str(error).splitlines()[0])
    lam = gl.signal_norm(problem.loss, problem.init(jax.random.key(0)), problem.data)
    np.testing.assert_allclose(lam["layers"][0]["weight"], 0.106716, atol=5e-7)  # half of the last digit given
    np.testing.assert_array_equal(lam["layers"][0]["bias"], 1)
