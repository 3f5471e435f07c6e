"""What the driver does for each device kind, in one module each."""
