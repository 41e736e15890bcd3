# SPDX-License-Identifier: Apache-2.0
"""What profilers of frameworks recorded of a network's run, beside the list of its launches."""
