# SPDX-License-Identifier: Apache-2.0
"""Build of the optional C core; everything else is declared in setup.cfg."""

from setuptools import Extension, setup
from setuptools.command.build_py import build_py


class BuildWithoutSetup(build_py):
    """The root of the repository is the package, and so this file would be taken for one of its modules."""

    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        return [found for found in super().find_package_modules(package, package_dir) if found[:2] != ("jetdvfs", "setup")]


setup(
    cmdclass={"build_py": BuildWithoutSetup},
    ext_modules=[
        Extension(
            "jetdvfs.kernels.trees._sweep",
            sources=[f"kernels/trees/{name}.c" for name in ("_sweep", "forest", "reach", "sweep")],
            depends=[f"kernels/trees/{name}.h" for name in ("forest", "reach", "sweep")],
            define_macros=[("Py_LIMITED_API", "0x030A0000")],
            py_limited_api=True,
            extra_compile_args=["-O3", "-fno-math-errno", "-fvisibility=hidden"],
            optional=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp310"}},
)
