"""The score board of detection: jobs with physical behaviour, faults of known size, healthy traps, who finds what."""

import os

# Before numpy is loaded: threads of its own for arrays this small only spin, and there is a process for each core.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
