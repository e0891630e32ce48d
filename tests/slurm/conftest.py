"""What the tests of the Slurm feed need."""

from slurmfixture import accounted, accounting_cluster, slurm, slurm_cluster

__all__ = ["accounted", "accounting_cluster", "slurm", "slurm_cluster"]
