"""enrich: who runs on this GPU at this time, written onto every sample and kernel event."""

from heeler.enrich.step import EnrichStep

__all__ = ["EnrichStep"]
