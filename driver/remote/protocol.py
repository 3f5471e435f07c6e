"""The messages and services of the Remote Execution API v2, from the package BuildStream."""

from __future__ import annotations

from typing import Any

from mlir_offload.toolchain.errors import ToolchainError

try:
    import grpc
    from buildstream._protos.build.bazel.remote.execution.v2 import (
        remote_execution_pb2,
        remote_execution_pb2_grpc,
    )
    from buildstream._protos.google.bytestream import bytestream_pb2, bytestream_pb2_grpc
    from buildstream._protos.google.longrunning import operations_pb2, operations_pb2_grpc
except ImportError as error:
    msg = f"--remote= needs gRPC and the messages of the Remote Execution API: {error}"
    raise ToolchainError(msg, hint="pip install 'mlir-offload[remote]'") from error

# The generated modules have no type annotations.
reapi: Any = remote_execution_pb2
services: Any = remote_execution_pb2_grpc
bytestream: Any = bytestream_pb2
bytestream_services: Any = bytestream_pb2_grpc
operations: Any = operations_pb2
operations_services: Any = operations_pb2_grpc
__all__ = [
    "bytestream",
    "bytestream_services",
    "grpc",
    "operations",
    "operations_services",
    "reapi",
    "services",
]
