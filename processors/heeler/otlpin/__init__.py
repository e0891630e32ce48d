"""otlp-in: takes OTLP metrics of other exporters, adds who holds each GPU and node in Slurm, and passes them on."""
