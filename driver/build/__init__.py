"""A whole build: from the command line to what comes out."""
