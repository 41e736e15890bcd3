# SPDX-License-Identifier: Apache-2.0
"""Tree ensembles evaluated over a whole frequency grid at once."""
