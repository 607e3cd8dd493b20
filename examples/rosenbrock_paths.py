# %% [markdown]
# # Three chains in Rosenbrock's valley
#
# The picture of the paper's Fig. 3a: from (-2, 2) aMC walks along a long curved valley to the minimum at (1, 1). The
# centre mu of its moves follows the accepted ones at a rate epsilon, and so the chain learns the direction of the
# valley. With epsilon = 0 it does not, and falls behind. A few seconds.

# %%
import matplotlib.pyplot as plt
import numpy as np

import gradless as gl

STEPS = 2_000
EPSILONS = [0.0, 0.01, 0.1]
START = np.array([-2.0, 2.0])


def valley(x):
    return (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2


# %% [markdown]
# A metric is any number of x. Recorded at every step, the two coordinates are the path. The three values of epsilon are
# three chains of one compiled call, with the same random numbers for everything else.


# %%
def place(x):
    return {"x": x[0], "y": x[1]}


algorithm = gl.amc(sigma=1e-3, epsilon=np.array(EPSILONS), n_s=20)
result = gl.train(
    algorithm,
    valley,
    START,
    steps=STEPS,
    chains=len(EPSILONS),
    metrics=place,
    record_every=1,
    precision="float64",
)
distances = np.linalg.norm(np.asarray(result.params) - 1, axis=1)
for epsilon, distance, acceptance in zip(EPSILONS, distances, result.acceptance, strict=True):
    print(
        f"epsilon {epsilon:<5} distance from the minimum {distance:.2g}, accepted {acceptance:.0%} of {STEPS:,} moves"
    )

# %%
x, y = np.meshgrid(np.linspace(-2.3, 1.5, 300), np.linspace(-0.6, 4.2, 300))
figure, axes = plt.subplots(figsize=(6.4, 4.8), layout="constrained")
axes.contour(x, y, np.log10(valley([x, y]) + 1e-3), levels=20, colors="0.8", linewidths=0.7)
styles = [("#8c8c8c", ":"), ("#2a78b5", "--"), ("#2e8b57", "-")]
for chain, (epsilon, (colour, dash)) in enumerate(zip(EPSILONS, styles, strict=True)):
    axes.plot(result.trace.x[chain], result.trace.y[chain], dash, color=colour, lw=1.8, label=f"ε = {epsilon:g}")
    axes.plot(result.trace.x[chain, -1], result.trace.y[chain, -1], "o", color=colour)
axes.plot(*START, "ks", label="start")
axes.plot(1, 1, "k*", ms=12, label="minimum")
axes.set(xlabel="$x_1$", ylabel="$x_2$", title=f"aMC in Rosenbrock's valley, {STEPS:,} steps")
axes.legend()
figure.savefig("rosenbrock_paths.png", dpi=120)
plt.close(figure)
print("rosenbrock_paths.png")
