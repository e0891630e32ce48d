"""What the GPUs of each run of a job did: samples in, sums out."""
