"""The `heeler` command."""
