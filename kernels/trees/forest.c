// SPDX-License-Identifier: Apache-2.0
//
// Checks a node table that comes from a file. Nothing in reach.c or sweep.c leaves its buffers for a table without a fault.
#include "forest.h"

#include <math.h>
#include <stdlib.h>

size_t first_fault(const Forest *forest, size_t n_nodes, const uint8_t *shapes, size_t n_boxes, double bound) {
    const uint32_t leaf_key = (uint32_t)(2 * forest->n_features);
    uint32_t *open = malloc((n_nodes + 1) * sizeof *open); /* right children still to come */
    if (!open) return SIZE_MAX;
    size_t fault = n_nodes;
    for (size_t t = 0; t < forest->n_trees && fault == n_nodes; t++) {
        const size_t end = forest->roots[t + 1];
        size_t depth = 0;
        for (size_t i = forest->roots[t]; i < end; i++) {
            const uint32_t key = forest->nodes[i].meta & KEY_MASK, rest = forest->nodes[i].meta >> KEY_BITS;
            const float value = as_float(forest->nodes[i].bits);
            int good;
            if (key < leaf_key) {
                good = value > -INFINITY && rest >= 2 && rest < end - i;
                if (good) open[depth++] = (uint32_t)(i + rest);
            } else {
                good = fabs((double)value) <= bound && rest < n_boxes && key - leaf_key == shapes[rest];
                good = good && (depth ? open[--depth] : end) == i + 1;
            }
            if (!good) {
                fault = i;
                break;
            }
        }
    }
    free(open);
    return fault;
}
