"""python -m heeler.drain."""

from heeler.drain.program import PROGRAM
from heeler.engine.process import main

main(PROGRAM)
