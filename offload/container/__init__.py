"""Containers of device images: offload binaries, bundles, fat binaries, archives."""
