"""Fixtures of the tests of otlp-in."""

from otlplab import receiver

__all__ = ["receiver"]
