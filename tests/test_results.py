"""docs/results.md says what the committed data say: every claim is judged again from the files."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from gradless.engine.session import Listener
from gradless.experiments import FIGURES
from gradless.experiments.fig4.medians import by_algorithm, step_of_outputs
from gradless.experiments.tables import column, read_table
from gradless.experiments.workshop import Halt, Stopped, Workshop
from gradless.kernels import AMC

DOCS = Path(__file__).parent.parent / "docs"
PAGE = DOCS / "results.md"
FOLDERS = sorted(
    folder for scale in ("paper", "quick") for folder in (DOCS / "results" / scale).glob("*") if folder.name in FIGURES
)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: f"{folder.parent.name}-{folder.name}")
def test_the_page_holds_what_the_data_say(folder, extension):
    """`docs/extension/results.py` would write it as it is."""
    assert extension("results").with_figure(PAGE.read_text(), folder) == PAGE.read_text()
    assert list(folder.glob("*.png"))


def test_every_figure_is_shown_once():
    assert sorted(folder.name for folder in FOLDERS) == sorted(FIGURES)


def test_the_words_about_the_plateau_of_f5_are_in_its_data():
    rows = [row for row in read_table(DOCS / "results" / "paper" / "F5" / "training.csv") if row["algorithm"] == "aMC"]
    step, loss, norm, accuracy = (column(rows, name) for name in ("step", "loss", "gradient_norm", "accuracy"))
    end = step[np.abs(loss / np.log(2) - 1) <= 0.01].max()
    first, last = np.median(norm[step < 2_000]), np.median(norm[(step > end - 2_000) & (step <= end)])
    words = " ".join(PAGE.read_text().split())
    assert f"For {end:,.0f} steps, {end // 9:,.0f} epochs, the loss stays at ln 2" in words
    assert f"grows from {first:.3f} to {last:.2f}, medians" in words
    before, after = accuracy[step == end][0], accuracy[step == end + 1_000][0]
    assert f"goes from {100 * before:.0f}% to {100 * after:.0f}% within 1,000 steps" in words
    soon, after = norm[(step > end) & (step <= end + 10_000)], norm[step > end]
    times = f"in the next 10,000 steps {np.median(soon) / last:.0f} times larger than just before"
    assert f"{times}, and {np.median(after) / last:.0f} times over all steps since" in words


def test_the_words_about_the_late_steps_of_f5_are_in_its_data():
    rows = [row for row in read_table(DOCS / "results" / "paper" / "F5" / "training.csv") if row["algorithm"] == "aMC"]
    step, loss, norm, accuracy = (column(rows, name) for name in ("step", "loss", "gradient_norm", "accuracy"))
    words = " ".join(PAGE.read_text().split())

    def median(values, first, last=np.inf):
        return np.median(values[(step > first) & (step <= last)])

    assert f"a median of {median(norm, 30_000, 32_000):.0f} between steps 30,000 and 32,000" in words
    fallen = (
        f"to {median(norm, 36_000, 40_000):.1f} between 36,000 and 40,000 and {median(norm, 45_000):.2f} after 45,000"
    )
    assert f"{fallen}, with a single peak of {norm.max():,.0f} at {step[norm.argmax()]:,.0f}" in words
    late = 100 * accuracy[step >= 31_000]
    assert f"up and down between {late.min():.2f}% and {late.max():.2f}%" in words
    best = step[accuracy.argmax()]
    wrong = round(2_115 * (1 - accuracy.max()))
    assert f"step {best:,.0f}, with {wrong} of the 2,115 test images wrong" in words
    assert f"the next best is {100 * accuracy[step != best].max():.2f}%" in words
    assert f"the median after 40,000 is {100 * median(accuracy, 40_000):.2f}%" in words
    assert f"to a median of {median(loss, 45_000):.3f} after 45,000" in words


def test_the_words_about_gd_from_large_gradients_are_in_its_data():
    rows = read_table(DOCS / "results" / "paper" / "F5" / "from-large-gradients.csv")
    rows = [row for row in rows if row["algorithm"] == "GD without clipping"]
    (start, first, after), later = rows[:3], [row for row in rows if row["step"] >= 100]
    assert (start["step"], first["step"], after["step"]) == (0, 1, 2)  # the loss of a step is that before it
    words = " ".join(PAGE.read_text().split())
    assert f"falls from {100 * start['accuracy']:.1f}% to {100 * first['accuracy']:.1f}%" in words
    assert f"the loss rises from {start['loss']:.2f} to {after['loss']:.2f}" in words
    assert all(abs(row["loss"] / np.log(2) - 1) < 0.01 for row in later)
    assert {f"with {100 * row['accuracy']:.1f}%" in words for row in later} == {True}
    assert f"for the {rows[-1]['step']:,.0f} that it has made" in words


def test_the_nets_shown_of_f4_are_of_the_step_that_is_judged():
    folder = DOCS / "results" / "paper" / "F4"
    of = by_algorithm(read_table(folder / "training.csv"))
    assert set(column(read_table(folder / "outputs.csv"), "step")) == {step_of_outputs(of)}


def test_the_words_about_the_sweep_of_f1_are_in_its_data():
    words = " ".join(PAGE.read_text().split())
    points = read_table(DOCS / "results" / "paper" / "F1" / "sweep.csv")
    assert len(points) == 12
    for row in points:
        setting = (
            f"{row['setting']:.1e}".replace(".0e", "e").replace("e-0", "e-").replace("e+00", "").replace("e+0", "e+")
        )
        if row["epochs"] < 100_000:
            assert f"at {setting} its gradient has vanished after {row['epochs']} epochs" in words
            assert f"with {100 * row['accuracy']:.2f}%" in words
        else:
            assert re.search(rf"{100 * row['accuracy']:.2f}% at (sigma = )?{setting}\b", words), setting


def test_the_words_about_when_f7_is_at_90_percent_are_in_its_data():
    words = " ".join(PAGE.read_text().split())
    rows = read_table(DOCS / "results" / "paper" / "F7" / "curves.csv")
    first, stays, samples = {}, {}, {}
    for run in ("amc", "minibatch", "progressive"):
        mine = [row for row in rows if row["run"] == run]
        there = column(mine, "accuracy") >= 0.9
        first[run] = mine[int(np.argmax(there))]
        stays[run] = mine[int(np.flatnonzero(~there)[-1]) + 1]
        samples[run] = f"{first[run]['samples'] / 1e8:.1f}e8"
    assert f"first at 90% after {first['minibatch']['epoch']:,.0f} epochs" in words
    assert f"stays above it from {stays['minibatch']['epoch']:,.0f} on" in words
    told = f"at 90% after {samples['minibatch']}, the full batch after {samples['amc']}, the growing one after"
    assert f"{told} {samples['progressive']}" in words


def test_the_words_about_the_runs_of_f1_are_in_its_data():
    runs = read_table(DOCS / "results" / "paper" / "F1" / "variation.csv")
    first, second, third = (f"{100 * row['accuracy']:.2f}%" for row in runs)
    deviation = 100 * np.std(column(runs, "accuracy"), ddof=1)
    words = " ".join(PAGE.read_text().split())
    assert f"{first}, {second} and {third}. Their standard deviation, {deviation:.2f} points" in words


def test_a_reproduction_takes_the_place_of_what_is_shown(tmp_path, extension, monkeypatch):
    results = extension("results")
    shown = next(folder for folder in FOLDERS if folder.name == "E2")
    page, data = tmp_path / "results.md", tmp_path / "results"
    shutil.copytree(shown, data / "paper" / "E2")
    page.write_text(PAGE.read_text())
    monkeypatch.setattr(results, "PAGE", page)
    monkeypatch.setattr(results, "DATA", data)
    fresh = tmp_path / "quick" / "E2"
    shutil.copytree(shown, fresh)
    results.publish(fresh)
    assert sorted(path.relative_to(data).parts[:2] for path in data.rglob("*.csv")) == [
        ("quick", "E2") for _ in fresh.glob("*.csv")
    ]
    # All that differs is how the section of E2 names its scale and its picture.
    before, after = PAGE.read_text().splitlines(), page.read_text().splitlines()
    changed = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
    assert all(new == old.replace("Paper scale", "Quick scale").replace("/paper/", "/quick/") for old, new in changed)
    assert changed


def test_a_run_that_is_not_over_goes_along_and_can_be_gone_on_with(tmp_path, extension, monkeypatch, one_step_rounds):
    """Its copy has the last checkpoint only, and gets to the same end as the run itself."""
    results = extension("results")
    page, source = tmp_path / "results.md", tmp_path / "paper" / "E2"
    shutil.copytree(next(folder for folder in FOLDERS if folder.name == "E2"), source)
    page.write_text(PAGE.read_text())
    monkeypatch.setattr(results, "PAGE", page)
    monkeypatch.setattr(results, "DATA", tmp_path / "results")

    halt = Halt()

    class Stop(Listener):
        def chunk_done(self, session, rows, flags):
            halt.stop_requested = "SIGTERM" if session.t >= 10 else None

    def train(folder, name, **stopping):
        shop = Workshop(folder, lambda words: None, **stopping)
        return shop.train(name, "rosenbrock", AMC(sigma=1e-3, epsilon=0.1), steps=40, record_every=10)

    train(source, "whole")
    with pytest.raises(Stopped):
        train(source, "stopped", halt=halt, follow=Stop)
    assert len(list((source / "runs" / "stopped" / "checkpoints").iterdir())) > 1
    results.publish(source)
    runs = tmp_path / "results" / "paper" / "E2" / "runs"
    assert [run.name for run in runs.iterdir()] == ["stopped"]
    assert len(list((runs / "stopped" / "checkpoints").iterdir())) == 1
    assert not (runs / "stopped" / "run.lock").exists()
    ends = [train(folder, "stopped").tensors["state.x"].tolist() for folder in (runs.parent, source)]
    assert ends == [train(source, "whole").tensors["state.x"].tolist()] * 2


def test_the_readme_quotes_the_page():
    """Every line of its table is a verdict of the page, and what it says was measured stands there word for word."""
    readme = (DOCS.parent / "README.md").read_text()
    rows = re.findall(r"^\| (\w+): [^|]* \| ([^|]*) \| (PASS|FAIL) \|$", readme, re.MULTILINE)
    assert len(rows) >= 5
    lines = PAGE.read_text().splitlines()
    on_the_page = [line for line in lines if re.match(r"\| [EF]\d", line) and re.search(r"\| (PASS|FAIL) \|", line)]
    assert len(rows) == len(on_the_page)  # none is left out
    for claim, measured, verdict in rows:
        decided = [line for line in lines if line.startswith(f"| {claim} |") and f"| {verdict} |" in line]
        assert any(measured in line for line in decided), (claim, measured)
