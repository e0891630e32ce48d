"""detect: finds the GPU that is up but slow, the fault that nobody reported, and says so with evidence."""

from heeler.detect.step import DetectStep
from heeler.detect.thresholds import Thresholds, demo, load
from heeler.detect.xid_table import XidTable, load_table

__all__ = ["DetectStep", "Thresholds", "XidTable", "demo", "load", "load_table"]
