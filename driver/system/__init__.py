"""What the driver needs of the system: files, jobs, threads, and what it remembers between calls."""

from mlir_offload.toolchain import load_on_use

load_on_use(__name__)
