"""Nodes that are in trouble again and again: features of four weeks, held against limits."""

from heeler.lemon.step import LemonStep as LemonStep
