# SPDX-License-Identifier: Apache-2.0
"""Searching for hyperparameters: MIRAGE's ranges (SEC '21, Table 2), by Optuna's TPE and Hyperband."""
