"""Fixtures of the tests of the exporter."""

from otlplab import receiver

__all__ = ["receiver"]
