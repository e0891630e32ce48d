"""Fixtures with a real Slurm: in a conftest, ``from slurmfixture import slurm, slurm_cluster``."""

from collections.abc import Iterator

import pytest
from needs import need
from slurmsandbox import Sandbox


@pytest.fixture(scope="session")
def slurm_cluster() -> Iterator[Sandbox]:
    """A cluster of four nodes with eight GPUs each, for all tests of the session."""
    need("slurm")
    sandbox = Sandbox(nodes=4, gpus=8)
    sandbox.start()
    yield sandbox
    sandbox.stop()


@pytest.fixture
def slurm(slurm_cluster: Sandbox) -> Sandbox:
    """The cluster, without jobs and with all nodes idle."""
    slurm_cluster.reset()
    return slurm_cluster
