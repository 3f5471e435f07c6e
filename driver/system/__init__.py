"""Operating system services: files, locks, job slots, threads, and caches between invocations."""

from mlir_offload.toolchain import load_on_use

load_on_use(__name__)
