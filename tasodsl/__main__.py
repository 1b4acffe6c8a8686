"""`python -m tasodsl` is the command `tasodsl`."""

from tasodsl.cli import main

main()
