"""python -m heeler.enrich."""

from heeler.engine.process import main
from heeler.enrich.program import PROGRAM

main(PROGRAM)
