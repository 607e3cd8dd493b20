"""What the tests of all figures share: a figure at smoke scale, and what the command says when it is drawn again."""

import importlib

import jax
import pytest
from click.testing import CliRunner

from gradless.cli.reproduce import command
from gradless.experiments import module_of
from gradless.experiments.workshop import Workshop


@pytest.fixture(scope="module")
def folder(request, tmp_path_factory):
    """Run the figure named by FIGURE in the test's module at smoke scale, once; return the folder of all figures."""
    folder = tmp_path_factory.mktemp("smoke")
    place = folder / request.module.FIGURE
    place.mkdir()
    figure = importlib.import_module(module_of(request.module.FIGURE))
    figure.run(place, figure.SCALES["smoke"], Workshop(place, tell=lambda words: None))
    return folder


class NotTrained(Exception):
    """A run was asked for, by this name."""


class Closed(Workshop):
    """Trains nothing, and says by an exception which run was asked for."""

    def train(self, name, *args, **plan):
        raise NotTrained(name)


@pytest.fixture
def first_asked_for(tmp_path):
    """Return a function of a figure, its folder and a scale: the first run that it would train, None if it has all."""

    def ask(figure, out, scale):
        try:
            figure.run(out, scale, Closed(out, lambda words: None))
        except NotTrained as asked:
            return str(asked)
        return None

    return ask


@pytest.fixture
def redrawn(request, folder):
    """Draw and judge again from the saved data, as a user would; return what the command says."""
    before = jax.config.read("jax_enable_x64")
    told = CliRunner().invoke(command, [request.module.FIGURE, "--redraw", "--scale", "smoke", "-o", str(folder)])
    jax.config.update("jax_enable_x64", before)
    assert told.exit_code == 0, told.output
    return told.output
