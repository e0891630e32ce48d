"""Who may do what on the bus: roles, and the servers' configurations for a site. Nothing here talks to a bus."""
