"""The picture of Fig. 5, from its tables."""

from pathlib import Path
from typing import Any

from gradless.experiments.fig5.settings import IMAGES, LN2, MARKERS, TRAINING
from gradless.experiments.tables import column, read_table
from gradless.plots import COLOURS, DASHES, new_figure, save


def draw(out: Path) -> list[Path]:
    """Draw (a) loss, (b) test accuracy and (c) the norm of the gradient at the models of aMC, with their loss."""
    rows = read_table(out / TRAINING)
    steps_per_epoch = -(-IMAGES // int(read_table(out / "runs.csv")[0]["batch"]))  # the last minibatch is short
    figure, (loss, accuracy, gradient) = new_figure(3, num_columns=3)
    for kind in ("GD", "Adam", "aMC"):
        mine = [row for row in rows if row["algorithm"] == kind]
        if not mine:
            continue
        style: dict[str, Any] = {"color": COLOURS[kind.lower()], "linestyle": DASHES[kind.lower()], "label": kind}
        style["linewidth"] = {"GD": 3.0, "Adam": 2.0}.get(kind, 1.4)  # to be seen where the curves coincide
        style |= {"marker": MARKERS[kind], "markevery": [len(mine) - 1]} if kind in MARKERS else {}
        epoch = column(mine, "step") / steps_per_epoch
        loss.plot(epoch, column(mine, "loss"), **style)
        accuracy.plot(epoch, 100 * column(mine, "accuracy"), **style)
        if kind == "aMC":
            gradient.plot(epoch, column(mine, "gradient_norm"), color=COLOURS["adam"], linewidth=1.4, label="|∇U|")
            gradient.plot(epoch, column(mine, "loss"), "--", color=COLOURS["amc"], linewidth=1.4, label="U, as in (a)")
    loss.axhline(LN2, color="black", linewidth=0.6, linestyle=(0, (1, 3)))
    loss.annotate(
        "ln 2", (0.98, LN2), (0, 3), xycoords=("axes fraction", "data"), textcoords="offset points", ha="right"
    )
    loss.set(xlabel="epoch n", ylabel="loss U (minibatch)", ylim=(0, max(0.8, 1.1 * LN2)))
    accuracy.set(xlabel="epoch n", ylabel="test accuracy C (%)", ylim=(40, 101))
    gradient.set(xlabel="epoch n", ylabel="|∇U| and U along aMC", yscale="log")
    for letter, axis in zip("abc", (loss, accuracy, gradient), strict=True):
        axis.set_title(f"({letter})", loc="left", fontsize=10)
        axis.grid(alpha=0.25, linewidth=0.5)
    loss.legend(frameon=False, loc="lower left")
    if gradient.lines:
        gradient.legend(frameon=False, loc="upper left")
    return [save(figure, out / "fig5")]
