"""Several devices, processes or machines.

mesh: what the user asks for; spread: the work of a run, spread over it.
layout: the devices of one chain; shards: its data in equal parts; processes: what they must agree on.
"""
