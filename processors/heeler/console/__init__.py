"""console: answers for people from what is on the bus."""
