"""Compile the kernels into the package: the rest is in pyproject.toml."""

from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py


class BuildKernels(build_py):
    """Add a shared library with the kernels to the package."""

    def run(self) -> None:
        """Copy the modules, then compile."""
        super().run()
        library = Path(self.build_lib, "scaling", "libscaling.so")
        command = ["mlir-offload", "-O2", "-shared", "-fPIC", "scale.mlir", "-o", str(library)]
        self.spawn(command)


class PlatformWheel(bdist_wheel):
    """Tag the wheel for this platform and any Python 3."""

    def get_tag(self) -> tuple[str, str, str]:
        """Return the tag for any Python 3, without an ABI."""
        return "py3", "none", super().get_tag()[2]


class PlatformDistribution(Distribution):
    """A distribution whose files depend on the platform."""

    def has_ext_modules(self) -> bool:
        """Return that the wheel depends on the platform."""
        return True


setup(
    cmdclass={"build_py": BuildKernels, "bdist_wheel": PlatformWheel},
    distclass=PlatformDistribution,
)
