"""What the driver needs of the system: files, jobs, threads, and what it remembers between calls."""
