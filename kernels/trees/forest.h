// SPDX-License-Identifier: Apache-2.0
//
// Trees and the frequency grid they are evaluated over, as node_table.py lays them out.
#ifndef JETDVFS_FOREST_H
#define JETDVFS_FOREST_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { KEY_BITS = 10, KEY_MASK = (1 << KEY_BITS) - 1, MOST_AXES = 6 };

typedef struct {
    uint32_t bits; /* float32: the threshold of a split, the value of a leaf */
    uint32_t meta; /* low KEY_BITS: key; above: distance to the right child, or a leaf's box */
} Node;

typedef uint16_t Edge; /* a box is its first and end edge on each axis */

typedef struct {
    const Node *nodes;
    const uint32_t *roots; /* n_trees + 1 */
    size_t n_trees, n_features, n_axes; /* the last n_axes features are frequencies */
} Forest;

typedef struct {
    size_t n_axes, length[MOST_AXES];
    float first[MOST_AXES], last[MOST_AXES]; /* levels */
    const int32_t *offset[MOST_AXES]; /* where in a row's sums each edge lies */
} Grid;

static inline float as_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline size_t shape_count(const Forest *forest) { return (size_t)1 << forest->n_axes; }

static inline size_t key_count(const Forest *forest) { return 2 * forest->n_features + shape_count(forest); }

/* The first node that breaks its tree's pre-order, key, value or box, or n_nodes if there is none; SIZE_MAX without memory. */
size_t first_fault(const Forest *forest, size_t n_nodes, const uint8_t *shapes, size_t n_boxes, double bound);

#endif
