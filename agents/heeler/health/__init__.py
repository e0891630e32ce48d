"""Health checks of a node: what is read (probes), what it means (checks), and what follows (policy)."""
