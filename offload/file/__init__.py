"""What a file holds of offloading, whatever it is, and what is wrong with it."""
