"""What is asked for: the command line, configuration, environment, and how they are told."""
