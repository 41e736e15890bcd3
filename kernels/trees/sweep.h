// SPDX-License-Identifier: Apache-2.0
//
// Rows of features through a forest; out is written as float32. Both return whether there was memory enough.
#ifndef JETDVFS_SWEEP_H
#define JETDVFS_SWEEP_H

#include "forest.h"

/* Every row at every configuration of the grid: out is n_rows times the grid's lengths. */
int sweep_rows(const Forest *forest, const Edge *boxes, const float *features, size_t n_rows, const Grid *grid, double scale,
               double base, float *out);

/* Every row as it is, frequencies included. */
int predict_rows(const Forest *forest, const float *features, size_t n_rows, double scale, double base, float *out);

#endif
