"""python -m heeler.sim."""

from heeler.sim.cli import sim_cli

sim_cli()
