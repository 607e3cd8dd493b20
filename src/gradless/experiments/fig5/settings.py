"""What Fig. 5 runs at each scale: a recurrent net on sequences of pixels, by aMC, gradient descent and Adam."""

from dataclasses import dataclass

import numpy as np

from gradless.kernels import AMC, Adam, GradientDescent
from gradless.types import Algorithm

TITLE = "Recurrent net on pixel sequences: gradients fail, aMC learns"
LN2 = float(np.log(2))  # the loss of not knowing
TRAINING, FROM_LARGE = "training.csv", "from-large-gradients.csv"
COLUMNS = ("algorithm", "step", "loss", "accuracy", "acceptance", "sigma", "gradient_norm", "is_over")  # of both
LARGE = "large-gradients.npy"  # the parameters along aMC's path that gradient descent starts from again
TARGET = 0.998  # the test accuracy of the paper, at which aMC may stop
IMAGES = 12_665  # zeros and ones of the training set; one epoch
ASSUMED = (
    "not in the paper: the number of steps, where the gradient is clipped (1), which pixels are white (above 0.25), "
    "the start (PyTorch's, of the head N(0, sigma_0^2))"
)
KINDS: dict[str, Algorithm] = {
    "aMC": AMC(sigma=1e-3, n_s=100, epsilon=0.0),
    "GD": GradientDescent(learning_rate=1e-3, clip=1.0),
    "Adam": Adam(learning_rate=1e-3, clip=1.0),
}
AGAIN: dict[str, Algorithm] = {  # started on aMC's path, in the regime of large gradients
    "GD without clipping": GradientDescent(learning_rate=1e-3),
    "GD with clipping": GradientDescent(learning_rate=1e-3, clip=1.0),
}
MARKERS = {"GD": "s", "Adam": "D"}  # where their curves end, at a small scale long before aMC's


@dataclass(frozen=True)
class Scale:
    """What one scale runs."""

    steps: int  # of aMC
    steps_gradient: int  # of GD and Adam
    steps_again: int  # of GD started in the regime of large gradients
    steps_large: int  # of aMC, off the plateau: among them is the one with the largest gradients
    shrink: int  # side of the squares of pixels that are averaged first; 1 is the paper's
    batch: int  # images per step
    hidden: int  # neurons per layer
    record_every: int  # steps; a record costs as much as the 2,115 test images
    budget: str  # of time, for people


SCALES = {
    # 17 divides the 12,665 images: no short last minibatch, which would be compiled apart.
    "smoke": Scale(12, 4, 0, 0, shrink=4, batch=17, hidden=4, record_every=1, budget="15 s"),
    # 14 x 14 pixels; long enough for the loss to leave ln 2, not for 99.7%.
    "quick": Scale(22_000, 600, 100, 5_000, shrink=2, batch=200, hidden=64, record_every=100, budget="11 min"),
    # The paper does not say how many steps it took; ours leaves ln 2 after 27,000, and ends early at the target.
    "paper": Scale(100_000, 40_000, 1_000, 10_000, shrink=1, batch=1500, hidden=64, record_every=100, budget="48 h"),
}
