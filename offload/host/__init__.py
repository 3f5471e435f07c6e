"""What host code says of offloading: entries, registration, embedded images."""
