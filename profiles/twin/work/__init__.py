# SPDX-License-Identifier: Apache-2.0
"""Work on a simulated board: frames of applications, and co-runners."""
