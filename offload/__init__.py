"""Offload formats and annotations: device images, entries, host modules and the runtime."""
