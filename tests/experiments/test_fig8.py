"""Fig. 8: smoke scale makes data, picture and verdict; hand-made tables are judged as the claim says."""

import jax
import pytest

from gradless.data.store import DataUnavailable
from gradless.experiments import fig8
from gradless.experiments.claims import FAIL, NOT_DECIDED, PASS
from gradless.experiments.tables import read_table, write_table
from gradless.experiments.workshop import Workshop
from gradless.models import ResNet


def write_curves(out, amc: float, device: str) -> None:
    rows = [
        {
            "device": device,
            "run": name,
            "step": n,
            "epoch": n / 60,
            "samples": n,
            "seconds": n,
            "loss": u,
            "accuracy": c,
        }
        for name, end in (("gd", 0.992), ("amc", amc))
        for n, u, c in ((0, 3.0, 0.1), (6_000, 0.1, 0.97), (600_000, 0.01, end))
    ]
    write_table(out / "curves.csv", rows)


def test_smoke_makes_data_a_picture_and_a_verdict_and_draws_again_from_the_file(tmp_path):
    fig8.run(tmp_path, fig8.SCALES["smoke"], Workshop(tmp_path, lambda words: None))
    (picture,) = fig8.draw(tmp_path)
    assert picture.with_suffix(".svg").stat().st_size > 0
    (verdict,) = fig8.check(tmp_path, "smoke")
    assert (verdict.claim, verdict.outcome) == ("F8", NOT_DECIDED)
    assert "digits" in verdict.differs


@pytest.mark.parametrize(
    ("amc", "scale", "device", "outcome"),
    [
        (0.992, "paper", "gpu", PASS),
        (0.98, "paper", "gpu", FAIL),
        (0.992, "paper", "cpu", NOT_DECIDED),
        (0.992, "quick", "gpu", NOT_DECIDED),
    ],
)
def test_only_the_whole_run_on_an_accelerator_decides(tmp_path, amc, scale, device, outcome):
    write_curves(tmp_path, amc, device)
    write_table(tmp_path / "cost.csv", [{"device": device, "seconds": 0.5, "steps": 600_000, "days": 6.9}])
    (verdict,) = fig8.check(tmp_path, scale)
    assert verdict.outcome == outcome
    assert "6.9 days" in verdict.measured
    assert fig8.draw(tmp_path)[0].exists()


def test_a_run_on_an_accelerator_that_was_stopped_decides_nothing_and_one_nan_changes_nothing(tmp_path):
    write_curves(tmp_path, 0.98, "gpu")
    rows = read_table(tmp_path / "curves.csv")
    write_table(tmp_path / "curves.csv", [row for row in rows if row["step"] < 600_000])
    assert fig8.check(tmp_path, "paper")[0].outcome == NOT_DECIDED
    write_curves(tmp_path, 0.992, "gpu")
    rows = read_table(tmp_path / "curves.csv")
    write_table(tmp_path / "curves.csv", [row | ({} if row["step"] else {"accuracy": float("nan")}) for row in rows])
    assert fig8.check(tmp_path, "paper")[0].outcome == PASS


def test_what_the_table_has_further_on_is_not_run_again_nor_replaced(tmp_path, first_asked_for):
    write_curves(tmp_path, 0.98, "gpu")
    assert first_asked_for(fig8, tmp_path, fig8.SCALES["smoke"]) is None
    rows = read_table(tmp_path / "curves.csv")
    fig8.note(tmp_path, "amc", [row | {"device": "cpu"} for row in rows if row["run"] == "amc" and row["step"] < 1e5])
    assert read_table(tmp_path / "curves.csv") == rows
    further = [row | {"step": row["step"] + 1} for row in rows if row["run"] == "gd"]
    fig8.note(tmp_path, "gd", further)
    assert read_table(tmp_path / "curves.csv") == further + [row for row in rows if row["run"] == "amc"]
    write_table(tmp_path / "curves.csv", [row for row in rows if row["run"] == "gd"])
    assert first_asked_for(fig8, tmp_path, fig8.SCALES["smoke"]) == "amc-30"


def test_where_the_loss_is_after_a_short_run_is_told_from_its_second_half(tmp_path):
    write_curves(tmp_path, 0.1, "cpu")
    rows = [row for row in read_table(tmp_path / "curves.csv") if row["step"] == 0]
    short = [row | {"step": step, "loss": 3.0 - step / 32} for row in rows for step in (0, 1, 2, 4, 8, 16, 32)]
    write_table(tmp_path / "curves.csv", short)
    (verdict,) = fig8.check(tmp_path, "paper")
    # (2.5 + 2.0)/2, of steps 16 and 32.
    assert verdict.measured.startswith("U GD 3.000 at the start, 2.250 on average from step 16 to 32, aMC")


def test_the_quick_net_is_resnet_18_with_fewer_channels():
    try:
        problem = fig8.small_resnet(**fig8.SCALES["quick"].options)
    except DataUnavailable as error:
        pytest.skip(str(error).splitlines()[0])

    def shapes(init):
        return jax.eval_shape(init, jax.random.key(0))

    found, whole = shapes(problem.init), shapes(lambda key: ResNet().init(key, "kaiming"))
    assert jax.tree.structure(found) == jax.tree.structure(whole)  # as many stages, blocks and layers
    assert found == shapes(lambda key: ResNet(channels=(8, 16, 32, 64)).init(key, "kaiming"))
    assert problem.data[0].shape == (60_000, 28, 28, 1)
    assert problem.test[0].shape == (500, 28, 28, 1)
