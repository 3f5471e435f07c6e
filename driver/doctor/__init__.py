"""The verb `doctor`: what is installed, tried for real."""
