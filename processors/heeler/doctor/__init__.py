"""heeler doctor: is this site set up so that Heeler can work, and what to change where it is not."""
