"""python -m heeler.detect."""

from heeler.detect.program import PROGRAM
from heeler.engine.process import main

main(PROGRAM)
