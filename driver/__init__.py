"""The compiler driver: decisions, order of steps and output."""

__version__ = "0.1.0"
