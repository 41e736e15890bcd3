// SPDX-License-Identifier: Apache-2.0
//
// The leaves that rows of features reach, for every configuration of a grid.
#ifndef JETDVFS_REACH_H
#define JETDVFS_REACH_H

#include "forest.h"

/* Rows that go through the trees together, a bit each. */
enum { ROWS = 32 };

#if defined(__GNUC__)
#define PREFETCH(address) __builtin_prefetch(address)
static inline size_t lowest(uint32_t bits) { return (size_t)__builtin_ctz(bits); }
#else
#define PREFETCH(address) ((void)(address))
static inline size_t lowest(uint32_t bits) {
    size_t bit = 0;
    while (!(bits >> bit & 1)) bit++;
    return bit;
}
#endif

typedef struct {
    float low, high;
} Range;

/* By key: a split is passed on the left by the rows whose low is below the threshold, and on the right by the others; by all if
 * high is not below it either, which only that of a frequency can be. */
typedef struct {
    float *low; /* ROWS for each key */
    float *high;
    Range *ranges; /* the same for each row, a key after the other; of leaves' keys empty */
} Values;

/* A node to look at, and the rows that come to it. */
typedef struct {
    uint32_t node, rows;
} Step;

/* A leaf that was reached, and by which rows, or which row. */
typedef struct {
    Node leaf;
    uint32_t rows;
} Reached;

typedef struct {
    size_t room; /* steps */
    int fits; /* every tree, for every row apart */
    Step *now, *next;
    Reached *reached;
} Frontier;

/* The way of some rows through the trees, block by block: [first, end) is the latest. Rows that share nothing go apart; its
 * leaves then come with a row's number, those of the first block, which decides that, still with bits. */
typedef struct {
    size_t first, end, rows;
    int apart, numbers;
} Walk;

static inline uint32_t all_of(size_t rows) { return rows < 32 ? ((uint32_t)1 << rows) - 1 : UINT32_MAX; }

int frontier_alloc(Frontier *frontier, const Forest *forest);
void frontier_free(Frontier *frontier);
int values_alloc(Values *values, const Forest *forest);
void values_free(Values *values);

/* Rows of features, of which the first n are taken; a missing one is on the side that its key's splits lead it to. */
void set_values(Values *values, const float *features, size_t n_features, size_t rows, size_t n);
void set_levels(Values *values, const Grid *grid, size_t fixed);

Walk walk_of(const Forest *forest, Values *values, size_t rows);

/* Reaches the leaves of the next block of trees; returns whether there was one. The first block, a short one, decides whether
 * the rows go on together. */
int next_leaves(const Forest *forest, Values *values, Walk *walk, Frontier *frontier, size_t *found);

#endif
