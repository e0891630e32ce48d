"""Drain: decides which node to take out of service, and takes it out. Dry run unless told otherwise."""
