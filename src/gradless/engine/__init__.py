"""The engine runs any algorithm on any loss: it knows `Algorithm`, never a kernel by name."""
