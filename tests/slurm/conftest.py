"""What the tests of the Slurm feed need."""

from slurmfixture import slurm, slurm_cluster

__all__ = ["slurm", "slurm_cluster"]
