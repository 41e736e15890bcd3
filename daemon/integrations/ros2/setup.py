# SPDX-License-Identifier: Apache-2.0
"""The ament_python package, for colcon."""

from setuptools import setup

setup(
    name="jetdvfs_ros",
    version="1.0.0",
    packages=["jetdvfs_ros"],
    data_files=[
        ("share/ament_index/resource_index/packages", ["resource/jetdvfs_ros"]),
        ("share/jetdvfs_ros", ["package.xml"]),
    ],
    install_requires=["setuptools"],
    zip_safe=True,
    license="Apache-2.0",
    entry_points={"console_scripts": ["holder = jetdvfs_ros.holder:main"]},
)
