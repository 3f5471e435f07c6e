"""Programs, versions and targets: what is installed and what it can do."""
