# SPDX-License-Identifier: Apache-2.0
"""Clocks for the inference of ROS 2 nodes: :class:`jetdvfs_ros.lease.NodeLease` in a node, or the node ``holder`` beside it."""
