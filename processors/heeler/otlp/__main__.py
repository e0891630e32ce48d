"""python -m heeler.otlp."""

from heeler.engine.process import main
from heeler.otlp.program import PROGRAM

main(PROGRAM)
