"""python -m heeler.lemon."""

from heeler.engine.process import main
from heeler.lemon.program import PROGRAM

main(PROGRAM)
