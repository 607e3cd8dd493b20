"""A bead in a harmonic trap is carried from 0 to 5 in time 1. Which path of the trap costs the least work?

The bead is overdamped (friction, stiffness and temperature are 1). The trap stands still at lambda_1, ..., lambda_n for
a time 1/n each; it jumps from 0 to lambda_1 at the beginning and from lambda_n to 5 at the end. The mean work of the
best smooth path with jumps at both ends is 25/3 (Schmiedl and Seifert, Phys. Rev. Lett. 98, 108301, 2007); a steady
pull costs 9.20, and a trap that waits at 0 and jumps at the end 12.5.

This file is the simulator, an outside program that knows nothing of gradless: it reads lambda_1, ..., lambda_n from a
file and prints the mean work over some simulated paths, which is noisy. The learning, about 20 s:

    gradless optimize --command "python examples/moving_trap.py {params} {seed}" --dim 8 \
        --sigma 1 --n-s 10 --reevaluate-every 10 --steps 400 --workers 2 --run runs/trap
    python examples/moving_trap.py compare runs/trap/best.txt

The noise is that of an experiment: without --reevaluate-every a value that was low by luck would stay the mark to beat.
"""

import math
import random
import sys

END, TIME, PATHS = 5.0, 1.0, 1000


def jump(x, old, new):
    """Return the work of moving the trap from `old` to `new` while the bead is at x."""
    return ((new - x) ** 2 - (old - x) ** 2) / 2


def simulate(protocol, rng):
    """Return the work along one path of the bead; between jumps its motion is known exactly."""
    decay = math.exp(-TIME / len(protocol))
    noise = math.sqrt(1 - decay**2)
    x, trap, work = rng.gauss(0, 1), 0.0, 0.0
    for new in protocol:
        work += jump(x, trap, new)
        trap = new
        x = trap + (x - trap) * decay + noise * rng.gauss(0, 1)
    return work + jump(x, trap, END)


def mean_work(protocol):
    """Return the exact mean: work is linear in x, so that the bead may be put at its mean position."""
    decay = math.exp(-TIME / len(protocol))
    x, trap, work = 0.0, 0.0, 0.0
    for new in protocol:
        work += jump(x, trap, new)
        trap = new
        x = trap + (x - trap) * decay
    return work + jump(x, trap, END)


def read(path):
    with open(path) as file:
        return [float(word) for word in file.read().split()]


def compare(path):
    learnt = read(path)
    steady = [END * (i + 0.5) / len(learnt) for i in range(len(learnt))]
    best = [END * (TIME * (i + 0.5) / len(learnt) + 1) / (TIME + 2) for i in range(len(learnt))]
    for name, protocol in (("steady pull", steady), ("learnt", learnt), ("theory", best)):
        print(f"{name:<12} work {mean_work(protocol):7.4f}   {' '.join(f'{place:5.2f}' for place in protocol)}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    elif sys.argv[1] == "compare":
        compare(sys.argv[2])
    else:
        generator = random.Random(int(sys.argv[2]))
        print(sum(simulate(read(sys.argv[1]), generator) for _ in range(PATHS)) / PATHS)
