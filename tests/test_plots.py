"""Figures drawn from stored numbers alone, on a machine that need not have JAX."""

import csv
import pickle
import re
import subprocess
import sys
import time

import numpy as np
import pytest

import gradless as gl
from gradless import plots
from gradless.records import disk

PNG = b"\x89PNG\r\n\x1a\n"


def quadratic(x):
    return (x**2).sum()


@pytest.fixture(scope="module", params=[1, 3], ids=["one chain", "three chains"])
def run(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("plots") / "run"
    gl.train(gl.amc(sigma=0.1), quadratic, np.ones(2), steps=40, chains=request.param, run=path)
    return path, request.param


@pytest.mark.parametrize("chains", [1, 3])
def test_a_result_and_its_folder_make_the_same_figure(tmp_path, chains):
    result = gl.train(gl.amc(sigma=0.1), quadratic, np.ones(2), steps=40, chains=chains, run=tmp_path / "run")
    from_result, from_folder = gl.plot(result), gl.plot(tmp_path / "run")
    labels = ["loss U", "acceptance A", "move scale σ"]
    for figure in (from_result, from_folder):
        assert [axis.get_ylabel() for axis in figure.axes if axis.lines] == labels
    for one, other in zip(from_result.axes, from_folder.axes, strict=True):
        for line, again in zip(one.lines, other.lines, strict=True):
            np.testing.assert_array_equal(line.get_xydata(), again.get_xydata())
        assert len(one.collections) == (chains > 1) * len(one.lines)  # the band of several chains


def test_a_notebook_shows_the_figure_and_another_process_takes_it():
    figure = gl.plot(gl.train(gl.amc(), quadratic, np.ones(2), steps=10))
    shown = figure._repr_png_()
    assert shown.startswith(PNG)
    assert pickle.loads(pickle.dumps(figure))._repr_png_() == shown  # noqa: S301 (our own)


def test_a_gradient_has_no_acceptance_to_draw():
    result = gl.train(gl.gradient_descent(), quadratic, np.ones(2), steps=10)
    assert [axis.get_ylabel() for axis in gl.plot(result).axes] == ["loss U"]


@pytest.mark.parametrize("wrong", [3, None, {"loss": [1, 2]}])
def test_what_is_no_run_cannot_be_drawn(wrong):
    with pytest.raises(ValueError, match=r"^run must be a result of gl.train or the folder of a run, got"):
        gl.plot(wrong)


def test_a_run_that_has_not_moved_cannot_be_drawn():
    result = gl.train(gl.amc(), quadratic, np.ones(2), steps=10, target_loss=5.0, time_budget=1e-9)
    assert result.steps == 0
    with pytest.raises(ValueError, match="two records at least"):
        gl.plot(result)


def table(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def assert_is_figure(path):
    """Both kinds of a picture are there, and something is in them."""
    raw = path.with_suffix(".png").read_bytes()
    width, height = (int.from_bytes(raw[at : at + 4], "big") for at in (16, 20))
    assert raw.startswith(PNG)
    assert width > 300
    assert height > 200
    assert len(raw) > 5000
    assert "<path" in path.with_suffix(".svg").read_text()


def test_training_curves_are_drawn_with_their_numbers(run):
    path, num_chains = run
    assert plots.draw_training(path) == path / "training.png"
    assert_is_figure(path / "training")
    rows = table(path / "training.csv")
    names = ["loss"] if num_chains == 1 else ["loss_0", "loss_1", "loss_2"]
    assert [name for name in rows[0] if re.match("loss", name)] == names
    assert [float(row["step"]) for row in rows] == list(range(41))


REDRAW = """
import sys

class NoJax:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("jax", "jaxlib", "optax"):
            raise ImportError(f"{name} is not here")

sys.meta_path.insert(0, NoJax())
from gradless.plots import draw_training
print(draw_training(sys.argv[1]))
try:
    import gradless
    gradless.train
except ImportError as error:
    print(error)
"""


def test_a_stored_run_is_drawn_again_without_jax(run):
    path, _ = run
    for suffix in ("png", "svg", "csv"):
        (path / f"training.{suffix}").unlink(missing_ok=True)
    words = [sys.executable, "-W", "error", "-c", REDRAW, str(path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [str(path / "training.png"), "jax is not here"]
    assert_is_figure(path / "training")
    assert (path / "training.csv").stat().st_size > 100


def test_a_run_without_records_has_no_picture(run, tmp_path):
    path, _ = run
    first = (path / "metrics.jsonl").read_text().splitlines()[0]
    for name in ("settings.json", "environment.json", "accepted.log"):
        (tmp_path / name).write_bytes((path / name).read_bytes())
    (tmp_path / "checkpoints").mkdir()
    for text in ("", first + "\n"):
        (tmp_path / "metrics.jsonl").write_text(text)
        assert plots.draw_training(tmp_path) is None
    assert not (tmp_path / "training.png").exists()


@pytest.mark.parametrize("outcomes", [[1.0, 2.0, 3.0, 4.0], [1.0, np.nan, np.inf, 1e300], [np.nan] * 4, [0.0] * 4])
@pytest.mark.parametrize("settings", [[1e-3, 1e-3, 1e-1, 1e-1], [0.0, 0.0, 1.0, 1.0], [20.0, 20.0, np.inf, np.inf]])
def test_a_sweep_is_drawn_whatever_came_of_it(tmp_path, outcomes, settings):
    rows = [{"sigma": setting, "loss": outcome} for setting, outcome in zip(settings, outcomes, strict=True)]
    plots.draw_sweep(tmp_path / "sweep", rows, "sigma", "loss")
    assert_is_figure(tmp_path / "sweep")


@pytest.mark.parametrize(
    ("loss", "num_chains"),
    [([1.0, 0.1, 1e-5], 1), ([1.0, 1e200, np.inf], 1), ([1.0, 1e200, np.nan], 2), ([-1.0, -2.0, -3.0], 2)],
)
def test_a_comparison_is_drawn_whatever_came_of_it(tmp_path, loss, num_chains):
    values = np.asarray(loss) if num_chains == 1 else np.stack([loss, [1.0, 0.5, 0.2]], axis=1)
    step = np.arange(3.0)
    columns = {"step": step, "samples": step, "seconds": step, "loss": values, "accuracy": values}
    plots.draw_comparison(tmp_path / "comparison", {"mc": columns, "adam": columns}, "accuracy")
    assert_is_figure(tmp_path / "comparison")


def test_kernels_of_ones_own_are_drawn_apart_from_the_papers(tmp_path, monkeypatch):
    lines = []
    monkeypatch.setattr(plots, "save", lambda figure, path: lines.extend(figure.axes[0].lines))
    columns = {name: np.arange(3.0) for name in ("step", "samples", "seconds", "loss")}
    plots.draw_comparison(tmp_path, dict.fromkeys(["mc", "mine", "yours"], columns), None)
    assert [line.get_label() for line in lines] == ["mc", "mine", "yours"]
    assert len({line.get_color() for line in lines}) == 3


def test_a_name_in_letters_that_the_font_lacks_is_no_warning(tmp_path):
    step = np.arange(3.0)
    columns = {"step": step, "samples": step, "seconds": step, "loss": step + 1, "误差": step + 1}
    plots.draw_comparison(tmp_path / "comparison", {"mc": columns}, "误差")
    assert_is_figure(tmp_path / "comparison")


def test_acceptance_is_smoothed_over_a_sixtieth_and_gaps_are_left_out():
    values = np.arange(180.0)  # a sixtieth is 3 records: one on either side
    np.testing.assert_allclose(plots.smooth(values)[1:-1], values[1:-1], rtol=1e-12)  # sums of up to 180 numbers
    np.testing.assert_array_equal(plots.smooth(values)[[0, -1]], [0.5, 178.5])
    values[[0, 1, 2, 90]] = np.nan
    smoothed = plots.smooth(values)
    assert np.isnan(smoothed[:2]).all()
    assert smoothed[2] == 3
    assert smoothed[90] == 90
    few = np.array([np.nan, 0.2, 0.4])
    np.testing.assert_allclose(plots.smooth(few), few, rtol=1e-12)


def test_a_chain_that_has_ended_stays_in_the_median(tmp_path, monkeypatch):
    lines = []
    monkeypatch.setattr(plots, "save", lambda figure, path: lines.extend(axis.lines[0] for axis in figure.axes))
    # The first of three chains ends at step 1 with the lowest loss, the last runs away.
    loss = np.array([[9.0, 9.0, 9.0], [1.0, 4.0, np.inf], [np.nan, 3.0, np.nan], [np.nan, 2.0, np.nan]])
    samples = np.array([[0.0] * 3, [10.0] * 3, [np.nan, 20.0, np.nan], [np.nan, 30.0, np.nan]])
    step = np.arange(4.0)
    plots.draw_comparison(tmp_path, {"gd": {"step": step, "samples": samples, "seconds": step, "loss": loss}}, None)
    by_step, by_samples, _ = lines
    np.testing.assert_allclose(by_step.get_ydata(), [9, 2.5, 2, 1.5])
    np.testing.assert_allclose(by_samples.get_xdata(), [0, 10, 40 / 3, 50 / 3])


def test_what_an_axis_cannot_show_is_a_gap():
    np.testing.assert_array_equal(
        plots.drawable(np.array([1.0, -1e101, np.inf, np.nan])), [1.0, np.nan, np.nan, np.nan]
    )


def test_columns_of_several_chains_have_a_name_each(tmp_path):
    plots.write_csv(tmp_path / "t.csv", {"step": np.array([0.0, 1.0]), "loss": np.array([[1.0, 2.0], [3.0, 4.0]])})
    assert (tmp_path / "t.csv").read_text().splitlines() == ["step,loss_0,loss_1", "0.0,1.0,2.0", "1.0,3.0,4.0"]


def test_figures_of_the_same_numbers_are_the_same(run, tmp_path):
    path, _ = run
    first = plots.draw_training(path).read_bytes()
    assert plots.draw_training(path).read_bytes() == first


IMPORT = """
import sys, time
began = time.perf_counter()
import gradless
print(time.perf_counter() - began)
heavy = ("torch", "sklearn", "matplotlib", "scipy")
print([name for name in heavy if name in sys.modules])
gradless.train, gradless.resume, gradless.signal_norm
print([name for name in heavy[:3] if name in sys.modules])
gradless.amc
print("optax" in sys.modules)
"""


def test_import_is_quick_and_takes_nothing_heavy():
    # The limit is 1.5 s; by itself it takes a tenth of that, and a busy machine may take several tries.
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True, timeout=120, check=True)
        seconds, *heavy = done.stdout.splitlines()
        assert heavy == ["[]", "[]", "False"]
        if float(seconds) < 1.5:
            return
        time.sleep(1)
    pytest.fail(f"import gradless took {seconds} s")


def test_every_public_name_is_there_and_a_subpackage_does_not_hide_one():
    assert set(gl.__all__) <= set(dir(gl))
    for name in gl.__all__:
        assert callable(getattr(gl, name))
    import gradless.signal_norm.trace

    assert gl.signal_norm is gradless.signal_norm is sys.modules["gradless.signal_norm.trace"].signal_norm
    with pytest.raises(AttributeError, match="module 'gradless' has no attribute 'nothing'"):
        _ = gl.nothing


def test_a_picture_stays_until_the_new_one_is_safe(tmp_path, monkeypatch):
    plots.save(plots.new_figure(1)[0], tmp_path / "a")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert set(before) == {"a.svg", "a.png"}

    def full(fd):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(disk, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        plots.save(plots.new_figure(2)[0], tmp_path / "a")
    assert before == {path.name: path.read_bytes() for path in tmp_path.iterdir()}


def test_a_table_replaces_a_link_and_does_not_write_through_it(tmp_path):
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "a.csv").symlink_to(tmp_path / "precious")
    plots.write_rows(tmp_path / "a.csv", [{"σ": 0.5, "name": "ü"}])
    assert (tmp_path / "precious").read_text() == "mine"
    assert (tmp_path / "a.csv").read_bytes() == "σ,name\r\n0.5,ü\r\n".encode()
