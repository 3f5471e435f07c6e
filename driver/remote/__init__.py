"""Steps of a project on other hosts, by the Remote Execution API."""

from mlir_offload.toolchain import load_on_use

load_on_use(__name__)
