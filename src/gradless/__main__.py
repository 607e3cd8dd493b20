"""`python -m gradless` is the command `gradless`."""

from gradless.cli import main

main()
