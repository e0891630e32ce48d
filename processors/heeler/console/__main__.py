"""python -m heeler.console."""

from heeler.console.program import PROGRAM
from heeler.engine.process import main

main(PROGRAM)
