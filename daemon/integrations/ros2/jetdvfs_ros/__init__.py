# SPDX-License-Identifier: Apache-2.0
"""Clocks for the inference of ROS 2 nodes: a :class:`jetdvfs_ros.lease.NodeLease`, or a ``holder`` node."""
