"""An outside program as the loss: it reads parameters from a file and writes one number."""
