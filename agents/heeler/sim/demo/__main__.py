"""python -m heeler.sim.demo."""

import signal

# Before the imports, which take a second: until something runs, a Ctrl-C simply ends us.
signal.signal(signal.SIGINT, signal.SIG_DFL)

from heeler.sim.demo.app import main  # noqa: E402 - see above

main()
