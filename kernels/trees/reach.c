// SPDX-License-Identifier: Apache-2.0
//
// A plain walk of every tree for every row spends its time waiting: for nodes that are in no near cache, and after branches that
// cannot be predicted. So:
//  - reach() takes up to 32 rows through the trees together. A node is visited once for all rows that come to it, with a bit for
//    each; splits on frequencies, most of them in models of clocks, send all of them the same way. Of the kernels of one
//    network 5 to 14 come to a node together. Where hardly any do, this costs more than it saves: the first few trees tell,
//    and reach_apart() then takes a step for each row.
//  - It goes level by level over a frontier of many trees. Its steps do not depend on each other, and none branches on data: both
//    children are always stored, and kept by adding 0 or 1 to the count.
//  - Right children are prefetched when they enter the frontier (left ones are next to their parent).
// tests/bench/limits.py prints the figures.
#include "reach.h"

#include <math.h>
#include <stdlib.h>

/* Trees whose nodes are looked at together, found by trial: with fewer the frontier runs dry, with more it leaves the cache. */
enum { TREES_PER_BLOCK = 128 };

/* Trees on which it is tried whether rows share nodes, and the rows at a leaf, on average, from which on that pays. */
enum { TREES_TRIED = 8, WORTH_SHARING = 2 };

/* Bounds the memory of a frontier for very large trees. */
enum { MOST_STEPS = 1 << 22 };

/* Where the block of trees ends that starts with this one. */
static size_t block_end(const Forest *forest, size_t first) {
    size_t end = first + 1;
    while (end < forest->n_trees && end - first < TREES_PER_BLOCK && forest->roots[end + 1] - forest->roots[first] <= MOST_STEPS)
        end++;
    return end;
}

int frontier_alloc(Frontier *frontier, const Forest *forest) {
    size_t most = 0;
    for (size_t first = 0; first < forest->n_trees; first = block_end(forest, first)) {
        const size_t nodes = forest->roots[block_end(forest, first)] - forest->roots[first];
        most = nodes > most ? nodes : most;
    }
    size_t largest = 0;
    for (size_t t = 0; t < forest->n_trees; t++) {
        const size_t nodes = forest->roots[t + 1] - forest->roots[t];
        largest = nodes > largest ? nodes : largest;
    }
    frontier->fits = largest <= MOST_STEPS / ROWS;
    if (frontier->fits && largest * ROWS > most) most = largest * ROWS;
    frontier->room = most;
    most += 2; /* the loop writes before it knows whether it keeps */
    frontier->now = malloc(most * sizeof *frontier->now);
    frontier->next = malloc(most * sizeof *frontier->next);
    frontier->reached = malloc(most * sizeof *frontier->reached);
    return frontier->now && frontier->next && frontier->reached;
}

void frontier_free(Frontier *frontier) {
    free(frontier->now);
    free(frontier->next);
    free(frontier->reached);
}

int values_alloc(Values *values, const Forest *forest) {
    const size_t keys = key_count(forest);
    values->low = calloc(keys * ROWS, sizeof *values->low);
    values->high = malloc(keys * sizeof *values->high);
    values->ranges = malloc(keys * ROWS * sizeof *values->ranges);
    for (size_t key = 0; values->high && key < keys; key++) values->high[key] = -INFINITY;
    return values->low && values->high && values->ranges;
}

void values_free(Values *values) {
    free(values->low);
    free(values->high);
    free(values->ranges);
}

void set_values(Values *values, const float *features, size_t n_features, size_t rows, size_t n) {
    for (size_t f = 0; f < n; f++)
        for (size_t r = 0; r < rows; r++) {
            const float x = features[r * n_features + f];
            values->low[2 * f * ROWS + r] = isnan(x) ? INFINITY : x;
            values->low[(2 * f + 1) * ROWS + r] = isnan(x) ? -INFINITY : x;
        }
}

void set_levels(Values *values, const Grid *grid, size_t fixed) {
    for (size_t a = 0; a < grid->n_axes; a++)
        for (size_t key = 2 * (fixed + a); key < 2 * (fixed + a) + 2; key++) {
            for (size_t r = 0; r < ROWS; r++) values->low[key * ROWS + r] = grid->first[a];
            values->high[key] = grid->last[a];
        }
}

/* Sets ranges from the rest. */
static void set_ranges(const Forest *forest, Values *values, size_t rows) {
    const size_t keys = key_count(forest), leaf_key = 2 * forest->n_features;
    for (size_t r = 0; r < rows; r++)
        for (size_t key = 0; key < keys; key++) {
            const float low = values->low[key * ROWS + r], high = values->high[key];
            values->ranges[r * keys + key] = key < leaf_key ? (Range){low, high > low ? high : low} : (Range){INFINITY, -INFINITY};
        }
}

/* Which of the first lanes values are below the threshold. */
static inline uint32_t below(const float *values, float threshold, const size_t lanes) {
    static const uint32_t bit[ROWS] = {
        1u << 0,  1u << 1,  1u << 2,  1u << 3,  1u << 4,  1u << 5,  1u << 6,  1u << 7,  1u << 8,  1u << 9,  1u << 10,
        1u << 11, 1u << 12, 1u << 13, 1u << 14, 1u << 15, 1u << 16, 1u << 17, 1u << 18, 1u << 19, 1u << 20, 1u << 21,
        1u << 22, 1u << 23, 1u << 24, 1u << 25, 1u << 26, 1u << 27, 1u << 28, 1u << 29, 1u << 30, 1u << 31,
    };
    uint32_t found = 0;
    for (size_t i = 0; i < lanes; i++) found |= values[i] < threshold ? bit[i] : 0;
    return found;
}

/* All leaves of trees [first, end) that some configuration reaches, and for which rows; returns how many. */
static inline size_t reach_lanes(const Forest *forest, size_t first, size_t end, const Values *values, uint32_t all,
                                 Frontier *frontier, const size_t lanes) {
    const Node *nodes = forest->nodes;
    const uint32_t leaf_key = (uint32_t)(2 * forest->n_features);
    Step *now = frontier->now, *next = frontier->next;
    Reached *reached = frontier->reached;
    size_t count = 0, found = 0;
    for (size_t t = first; t < end; t++) now[count++] = (Step){forest->roots[t], all};
    while (count) {
        size_t kept = 0;
        for (size_t i = 0; i < count; i++) {
            const Step step = now[i];
            const Node node = nodes[step.node];
            const uint32_t key = node.meta & KEY_MASK, leaf = key >= leaf_key, rows = step.rows & (leaf - 1);
            const float threshold = as_float(node.bits);
            const uint32_t left = below(values->low + key * ROWS, threshold, lanes);
            const uint32_t both = values->high[key] < threshold ? 0 : UINT32_MAX;
            next[kept] = (Step){step.node + 1, rows & left};
            kept += (rows & left) != 0;
            next[kept] = (Step){step.node + (node.meta >> KEY_BITS), rows & (~left | both)};
            PREFETCH(nodes + next[kept].node);
            kept += (rows & (~left | both)) != 0;
            reached[found] = (Reached){node, step.rows};
            found += leaf;
        }
        Step *swap = now;
        now = next;
        next = swap;
        count = kept;
    }
    return found;
}

static size_t reach(const Forest *forest, size_t first, size_t end, const Values *values, size_t rows, Frontier *frontier) {
    const uint32_t all = all_of(rows);
    if (rows == 1) return reach_lanes(forest, first, end, values, all, frontier, 1);
    if (rows <= 4) return reach_lanes(forest, first, end, values, all, frontier, 4);
    if (rows <= 8) return reach_lanes(forest, first, end, values, all, frontier, 8);
    if (rows <= 16) return reach_lanes(forest, first, end, values, all, frontier, 16);
    return reach_lanes(forest, first, end, values, all, frontier, ROWS);
}

enum { ROW_SHIFT = 16, PLACE_MASK = (1 << ROW_SHIFT) - 1 };

/* The same for rows that share nothing: a step for each row, with its number and its place in ranges; a leaf with the number. */
static size_t reach_apart(const Forest *forest, const Walk *walk, const Range *ranges, Frontier *frontier) {
    const Node *nodes = forest->nodes;
    const uint32_t leaf_key = (uint32_t)(2 * forest->n_features), keys = (uint32_t)key_count(forest);
    Step *now = frontier->now, *next = frontier->next;
    Reached *reached = frontier->reached;
    size_t count = 0, found = 0;
    for (size_t t = walk->first; t < walk->end; t++)
        for (uint32_t r = 0; r < walk->rows; r++) now[count++] = (Step){forest->roots[t], r << ROW_SHIFT | r * keys};
    while (count) {
        size_t kept = 0;
        for (size_t i = 0; i < count; i++) {
            const Step step = now[i];
            const Node node = nodes[step.node];
            const uint32_t key = node.meta & KEY_MASK;
            const Range range = ranges[(step.rows & PLACE_MASK) + key];
            const float threshold = as_float(node.bits);
            next[kept] = (Step){step.node + 1, step.rows};
            kept += range.low < threshold;
            next[kept] = (Step){step.node + (node.meta >> KEY_BITS), step.rows};
            PREFETCH(nodes + next[kept].node);
            kept += !(range.high < threshold);
            reached[found] = (Reached){node, step.rows >> ROW_SHIFT};
            found += key >= leaf_key;
        }
        Step *swap = now;
        now = next;
        next = swap;
        count = kept;
    }
    return found;
}

static size_t count_bits(uint32_t bits) {
    size_t count = 0;
    for (; bits; bits &= bits - 1) count++;
    return count;
}

static int worth_sharing(const Frontier *frontier, size_t found) {
    size_t rows = 0;
    for (size_t i = 0; i < found; i++) rows += count_bits(frontier->reached[i].rows);
    return rows >= WORTH_SHARING * found;
}

static void go_apart(const Forest *forest, Values *values, Walk *walk) {
    set_ranges(forest, values, walk->rows);
    walk->apart = 1;
}

Walk walk_of(const Forest *forest, Values *values, size_t rows) {
    Walk walk = {.rows = rows};
    if (rows == 1) go_apart(forest, values, &walk);
    return walk;
}

int next_leaves(const Forest *forest, Values *values, Walk *walk, Frontier *frontier, size_t *found) {
    const size_t first = walk->first = walk->end, steps = walk->rows;
    if (first == forest->n_trees) return 0;
    if (walk->apart) {
        size_t end = first + 1;
        while (end < forest->n_trees && (end + 1 - first) * steps <= TREES_PER_BLOCK &&
               (forest->roots[end + 1] - forest->roots[first]) * steps <= frontier->room)
            end++;
        walk->end = end;
        walk->numbers = 1;
        *found = reach_apart(forest, walk, values->ranges, frontier);
        return 1;
    }
    walk->end = block_end(forest, first);
    if (!first && walk->end > TREES_TRIED) walk->end = TREES_TRIED;
    *found = reach(forest, first, walk->end, values, walk->rows, frontier);
    if (!first && frontier->fits && !worth_sharing(frontier, *found)) go_apart(forest, values, walk);
    return 1;
}
