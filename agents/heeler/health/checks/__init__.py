"""The checks, one file for each family: a probe that reads, judges that are pure, and their lines of the table."""
