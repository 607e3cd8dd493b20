"""How fast a step is: against peers in one run, and against the limits of the machine."""
