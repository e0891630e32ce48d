"""A whole Heeler on one machine: real processes, a simulated fleet, injected faults, and the story told."""
