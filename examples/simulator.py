# %% [markdown]
# # A simulator as the loss
#
# A bead in a harmonic trap is carried from 0 to 5 in time 1, in a fluid. Which path of the trap costs the least work?
# The loss is the mean work over some simulated paths: NumPy, noisy, no gradient. Theory knows the answer (Schmiedl and
# Seifert, Phys. Rev. Lett. 98, 108301, 2007): a jump at both ends, a steady pull between, a mean work of 25/3. Seconds.
# `moving_trap.py` is the same as an outside program.

# %%
import matplotlib.pyplot as plt
import numpy as np

import gradless as gl

EVALUATIONS = 4_000
STEPS_OF_TRAP = 8
PATHS = 4_000
END = 5.0

rng = np.random.default_rng(0)


def work(protocol, paths=PATHS):
    """Return the mean work; between the jumps of the trap the bead's motion is known exactly."""
    decay = np.exp(-1 / STEPS_OF_TRAP)
    x, trap, total = rng.normal(size=paths), 0.0, 0.0
    for new in [*protocol, END]:
        total = total + ((new - x) ** 2 - (trap - x) ** 2) / 2
        trap = new
        x = trap + (x - trap) * decay + np.sqrt(1 - decay**2) * rng.normal(size=paths)
    return float(np.mean(total))


# %% [markdown]
# The loss is noisy: a value that was low by luck would stay the mark to beat. `reevaluate_every=10` measures the
# present point again every ten steps.

# %%
result = gl.minimize(
    work,
    np.zeros(STEPS_OF_TRAP),
    sigma=1.0,
    n_s=10,
    maxfev=EVALUATIONS,
    reevaluate_every=10,
    bounds=(-1, 6),
)
middle = (np.arange(STEPS_OF_TRAP) + 0.5) / STEPS_OF_TRAP
protocols = {"steady pull": END * middle, "learnt by aMC": result.x, "theory": END * (middle + 1) / 3}
for name, protocol in protocols.items():
    print(f"{name:<14} mean work {work(protocol, paths=200_000):.3f}")

# %%
figure, axes = plt.subplots(figsize=(6.4, 4.4), layout="constrained")
styles = {"steady pull": ("0.6", ":"), "learnt by aMC": ("#2e8b57", "-"), "theory": ("k", "--")}
for name, protocol in protocols.items():
    colour, line = styles[name]
    axes.step(
        [0, *np.linspace(0, 1, STEPS_OF_TRAP + 1)], [0, *protocol, END], where="post", color=colour, ls=line, label=name
    )
axes.set(xlabel="time", ylabel="place of the trap", title="The path of least work")
axes.legend()
figure.savefig("simulator.png", dpi=120)
plt.close(figure)
print("simulator.png")
