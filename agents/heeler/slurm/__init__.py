"""The Slurm feed: what the controller says of jobs and nodes, as events on the bus.

`hostlist`, `gres`, `tres`, `state`, `times`, `jsonnumbers`, `jobid`, `jsonfix` and `text` parse; `jobs` and `nodes`
read whole answers; `feed` compares an answer with what is known; `sources` and `command` ask Slurm; `agent` is the
process.
"""
