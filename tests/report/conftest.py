"""Small runs to make pages of."""

import shutil

import jax.numpy as jnp
import numpy as np
import pytest

import gradless as gl

EVIL = "<script>document.title='owned'</script>&\"'<img src=x onerror=alert(1)>".replace("/", "|")


def bowl(x):
    return jnp.sum(x**2)


def train_bowl(path, steps=60, **settings):
    return gl.train(gl.amc(sigma=0.1, n_s=5), bowl, np.ones(3, np.float32), steps=steps, run=path, **settings)


@pytest.fixture(scope="module")
def bowl_run(tmp_path_factory):
    """A finished run, to look at."""
    path = tmp_path_factory.mktemp("runs") / "bowl"
    train_bowl(path)
    return path


@pytest.fixture
def bowl_copy(bowl_run, tmp_path):
    """The same in a folder of its own, to change."""
    return shutil.copytree(bowl_run, tmp_path / "runs" / "bowl")
