"""The workloads are the paper's problems at the paper's sizes."""

import jax
import numpy as np
import pytest

from gradless.bench.workloads import WORKLOADS, Workload, make_workload, tiny
from gradless.problem import Problem


@pytest.mark.parametrize(("name", "size"), [("W2", 2589), ("W3", 2), ("W6", 1_004_001)])
def test_the_parameters_are_as_many_as_the_papers(name, size):
    workload = make_workload(name)
    assert workload.num_parameters == size
    assert workload.losses_per_step == 1
    assert all(leaf.dtype == np.float32 for leaf in jax.tree.leaves((workload.start(), workload.data)))


def test_the_settings_are_the_papers():
    assert make_workload("w2").settings == {"sigma": 1e-2, "epsilon": 1e-2, "n_s": 100, "signal_norm": True}
    assert make_workload("W3").settings == {"sigma": 1e-3, "epsilon": 1e-2, "n_s": 20}


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_tiny_ones_have_the_same_kind_of_net(name):
    workload = tiny(name)
    assert workload.num_parameters < 2000
    kinds = {"W1": "MLP", "W2": "MLP", "W3": "NoneType", "W4": "RNN", "W5": "ResNet", "W6": "MLP"}
    assert type(workload.net).__name__ == kinds[name]
    assert (workload.batch is None) == (name not in ("W4", "W5"))


def test_minibatches_are_all_of_one_size():
    data = (np.arange(21.0), np.arange(21))
    workload = Workload("W", "", Problem(np.ones(2), lambda x, batch: 0.0, data), {"sigma": 1.0}, batch=8)
    assert [len(array) for array in workload.data] == [16, 16]
    assert [array.dtype for array in workload.data] == [np.float32, np.int64]
    assert (workload.samples_per_loss, workload.losses_per_step) == (8, 2)


def test_an_unknown_name_is_refused():
    with pytest.raises(ValueError, match=r"there is no workload 'W9'; did you mean W"):
        make_workload("W9")
