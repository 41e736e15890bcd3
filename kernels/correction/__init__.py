# SPDX-License-Identifier: Apache-2.0
"""What observation tells of a surface: corrected predictions, and first ones where no model is known."""
