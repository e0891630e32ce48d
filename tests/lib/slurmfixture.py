"""Fixtures with a real Slurm: in a conftest, ``from slurmfixture import slurm, slurm_cluster``; two with accounting."""

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


@pytest.fixture(scope="session")
def accounting_cluster() -> Iterator[Sandbox]:
    """A cluster of two nodes with accounting and slurmrestd, for all tests of the session."""
    need("accounting")
    sandbox = Sandbox(nodes=2, gpus=8, accounting=True, rest=True)
    sandbox.start()
    yield sandbox
    sandbox.stop()


@pytest.fixture
def accounted(accounting_cluster: Sandbox) -> Sandbox:
    """The cluster with accounting, without jobs and with all nodes idle."""
    accounting_cluster.reset()
    return accounting_cluster
