"""NVIDIA GPUs."""

from __future__ import annotations

from mlir_offload.toolchain.target import NVPTX_TRIPLE, SM, DeviceKind, Kind, sm_number


class _Cuda(DeviceKind):
    name = Kind.CUDA
    word = "cuda"
    title = "GPUs of NVIDIA"
    triple = NVPTX_TRIPLE
    arch_form = SM
    arch_hint = "sm_NN (NVIDIA)"
    example = "sm_90"
    uses_cuda = True

    def runs(self, code_arch: str, arch: str, /) -> bool:
        """Return whether a GPU runs the code. Code of older architectures without a suffix runs too."""
        try:
            is_older = sm_number(code_arch) <= sm_number(arch)
        except ValueError:
            return False
        return is_older and (code_arch[-1].isdigit() or code_arch == arch)


KIND = _Cuda()
