"""The engine runs any algorithm on any loss: it knows `Algorithm`, never a kernel by name.

To read it, follow a call of `gl.train` from the host down to the compiled loop:

train: what the user gives becomes a session (plan, checks, flat, placing, packed, objective on the way).
session: all chains in rounds, on threads; who listens to it (callback, recording, diagnosis) sees their records.
chains: one chain, chunk after chunk.
loop: a chunk, the one compiled loop over steps, with records at some of them (program, compiling).
stepping: a step after the other, on the data that batches and shuffle give it.

Beside that path stand three groups: steps made ahead (speculate, pace, foresee), several devices (mesh, layout, shards,
spread, processes), and runs on disk (recording, stored, replay). Selection and tuning are options of ours.
"""
