"""A simulated GPU cluster: the facts that node agents and the Slurm feed would publish, and faults on order."""
