"""python -m heeler.summary."""

from heeler.engine.process import main
from heeler.summary.program import PROGRAM

main(PROGRAM)
