"""Heeler's facts and findings for the rest of the world: OTLP metrics and logs, stdout, files, plug-ins.

Delivery is at-least-once: a message is acknowledged on the bus after its points were taken by the sink, so a
process that dies between the two sends them again. Exactly once is not promised.
"""
