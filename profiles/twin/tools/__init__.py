# SPDX-License-Identifier: Apache-2.0
"""Programs of a simulated board that behave as NVIDIA's nvpmodel and jetson_clocks were seen to, and the files they need.

Written from what is published about those programs. They find their board by where they lie: ``ROOT/usr/sbin/nvpmodel`` works
on ``ROOT``. They touch a board by its files alone, with the standard library alone, so that each call starts quickly.
"""
