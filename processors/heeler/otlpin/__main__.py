"""``python -m heeler.otlpin``."""

from heeler.engine.process import main
from heeler.otlpin.program import PROGRAM

main(PROGRAM)
