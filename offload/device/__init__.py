"""Device code of every format: its kernels, their parameters, what it was compiled for."""
