"""Health checks of a node: what is read (probes), what it means (checks), and what follows (policy)."""

# As in pyproject.toml, which a test compares: asking importlib.metadata costs a prolog 10 ms.
VERSION = "0.1.0"
