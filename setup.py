# SPDX-License-Identifier: Apache-2.0
"""Build of the optional C core; everything else is declared in setup.cfg."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "jetdvfs.kernels._sweep",
            sources=["kernels/_sweep.c"],
            define_macros=[("Py_LIMITED_API", "0x030A0000")],
            py_limited_api=True,
            extra_compile_args=["-O3", "-fno-math-errno"],
            optional=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp310"}},
)
