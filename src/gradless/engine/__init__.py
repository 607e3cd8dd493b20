"""The engine runs any algorithm on any loss: it knows `Algorithm`, never a kernel by name.

To read it, follow a call of `gl.train` from the host down to the compiled loop:

train: what the user gives becomes a session (plan, checks, flat, placing, packed, objective on the way).
session: all chains in rounds, on threads; who listens to it (callback, disk.recording) sees their records. It ends in a
result, with advice by diagnosis.
chains: one chain, chunk after chunk, on the work that it is given.
loop: a chunk, the one compiled loop over steps, with records at some of them (program, compiling).
stepping: a step after the other, on the data that batches and shuffle give it.

Beside that path: `ahead`, steps made before their turn; `devices`, more than one of them; `disk`, runs that are kept.
Selection and tuning are options of ours.
"""
