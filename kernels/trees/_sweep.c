// SPDX-License-Identifier: Apache-2.0
//
// The C core of ensemble.py: partial evaluation of trees over a frequency grid of one to six axes. node_table.py describes the
// data, and reference_sweep.py is the same algorithm in NumPy. Everything is checked in Python before it gets here; nothing
// below leaves its buffers for any table that first_fault() accepts.
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
//  - Rows are summed one after the other on the same sums: a leaf that some rows in succession reach is added with the first of
//    them and taken away after the last. Until then leaves wait in lists by row and by shape of box, so that a box that is open
//    on an axis costs no corners there.
// docs/sweep.md has the figures.
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_BITS = 10, KEY_MASK = (1 << KEY_BITS) - 1, MOST_AXES = 6, MOST_CORNERS = 1 << MOST_AXES };

/* Rows that go through the trees together, a bit each. Trees whose nodes are looked at together, found by trial: with fewer the
 * frontier runs dry, with more it leaves the cache. */
enum { ROWS = 32, TREES_PER_BLOCK = 128, LEAVES_AHEAD = 12 };

/* Trees on which it is tried whether rows share nodes, and the rows at a leaf, on average, from which on that pays. */
enum { TREES_TRIED = 8, WORTH_SHARING = 2 };

/* Bounds the memory of a frontier for very large trees. */
enum { MOST_STEPS = 1 << 22 };

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
    Node *leaves;
    size_t count, room;
} List;

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

static float as_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static size_t shape_count(const Forest *forest) { return (size_t)1 << forest->n_axes; }

static size_t key_count(const Forest *forest) { return 2 * forest->n_features + shape_count(forest); }

static uint32_t all_of(size_t rows) { return rows < 32 ? ((uint32_t)1 << rows) - 1 : UINT32_MAX; }

/* Where the block of trees ends that starts with this one. */
static size_t block_end(const Forest *forest, size_t first) {
    size_t end = first + 1;
    while (end < forest->n_trees && end - first < TREES_PER_BLOCK && forest->roots[end + 1] - forest->roots[first] <= MOST_STEPS)
        end++;
    return end;
}

static int frontier_alloc(Frontier *frontier, const Forest *forest) {
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

static void frontier_free(Frontier *frontier) {
    free(frontier->now);
    free(frontier->next);
    free(frontier->reached);
}

static int values_alloc(Values *values, const Forest *forest) {
    const size_t keys = key_count(forest);
    values->low = calloc(keys * ROWS, sizeof *values->low);
    values->high = malloc(keys * sizeof *values->high);
    values->ranges = malloc(keys * ROWS * sizeof *values->ranges);
    for (size_t key = 0; values->high && key < keys; key++) values->high[key] = -INFINITY;
    return values->low && values->high && values->ranges;
}

static void values_free(Values *values) {
    free(values->low);
    free(values->high);
    free(values->ranges);
}

/* Rows of features, of which the first n are taken; a missing one is on the side that its key's splits lead it to. */
static void set_values(Values *values, const float *features, size_t n_features, size_t rows, size_t n) {
    for (size_t f = 0; f < n; f++)
        for (size_t r = 0; r < rows; r++) {
            const float x = features[r * n_features + f];
            values->low[2 * f * ROWS + r] = isnan(x) ? INFINITY : x;
            values->low[(2 * f + 1) * ROWS + r] = isnan(x) ? -INFINITY : x;
        }
}

static void set_levels(Values *values, const Grid *grid, size_t fixed) {
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

static Walk walk_of(const Forest *forest, Values *values, size_t rows) {
    Walk walk = {.rows = rows};
    if (rows == 1) go_apart(forest, values, &walk);
    return walk;
}

/* Reaches the leaves of the next block of trees; returns whether there was one. The first block, a short one, decides whether
 * the rows go on together. */
static int next_leaves(const Forest *forest, Values *values, Walk *walk, Frontier *frontier, size_t *found) {
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

static int append(List *list, Node leaf) {
    if (list->count == list->room) {
        const size_t room = list->room ? 2 * list->room : 256;
        Node *leaves = realloc(list->leaves, room * sizeof *leaves);
        if (!leaves) return 0;
        list->leaves = leaves;
        list->room = room;
    }
    list->leaves[list->count++] = leaf;
    return 1;
}

/* Lists a leaf, by shape of its box, with the row from which on it counts, and its opposite with the row from which on it does
 * not, for each run of rows that reach it. */
static int append_runs(List *lists, size_t shapes, uint32_t shape, Node leaf, uint32_t rows, uint32_t all) {
    int ready = 1;
    for (uint32_t changes = (rows ^ rows << 1) & all; changes; changes &= changes - 1) {
        const size_t row = lowest(changes);
        ready &= append(&lists[row * shapes + shape], (Node){leaf.bits ^ (~rows >> row) << 31, leaf.meta});
    }
    return ready;
}

/* The same without runs: a leaf for each row that reaches it. */
static int append_each(List *lists, size_t shapes, uint32_t shape, Node leaf, uint32_t rows) {
    int ready = 1;
    for (; rows; rows &= rows - 1) ready &= append(&lists[lowest(rows) * shapes + shape], leaf);
    return ready;
}

/* Adds each leaf to the corners of its box. Bit a of shape: the box is open on axis a, which has no end corners then.
 * Unsigned, so that a passing overflow is defined, and cancels. */
static void add_corners(uint64_t *sums, const List *list, const Edge *boxes, const Grid *grid, double scale, size_t shape) {
    size_t closed[MOST_AXES], n_closed = 0;
    for (size_t a = 0; a < grid->n_axes; a++)
        if (!(shape >> a & 1)) closed[n_closed++] = a;
    for (size_t i = 0; i < list->count; i++) {
        if (i + LEAVES_AHEAD < list->count) PREFETCH(boxes + 2 * grid->n_axes * (list->leaves[i + LEAVES_AHEAD].meta >> KEY_BITS));
        const Edge *box = boxes + 2 * grid->n_axes * (list->leaves[i].meta >> KEY_BITS);
        const uint64_t value = (uint64_t)(int64_t)(as_float(list->leaves[i].bits) * scale);
        int32_t corner[MOST_CORNERS];
        uint64_t part[MOST_CORNERS];
        size_t corners = 1;
        corner[0] = 0;
        part[0] = value;
        for (size_t a = 0; a < grid->n_axes; a++) corner[0] += grid->offset[a][box[2 * a]];
        for (size_t j = 0; j < n_closed; j++, corners *= 2) {
            const size_t a = closed[j];
            const int32_t across = grid->offset[a][box[2 * a + 1]] - grid->offset[a][box[2 * a]];
            for (size_t c = 0; c < corners; c++) {
                corner[corners + c] = corner[c] + across;
                part[corners + c] = -part[c];
            }
        }
        for (size_t c = 0; c < corners; c++) sums[corner[c]] += part[c];
    }
}

/* The same for three axes, the usual case, unrolled for each shape: a third fewer instructions in the whole sweep. */
static inline void add_corners_of_3(uint64_t *sums, const List *list, const Edge *boxes, const int32_t *const offset[3],
                                    double scale, const int shape) {
    for (size_t i = 0; i < list->count; i++) {
        if (i + LEAVES_AHEAD < list->count) PREFETCH(boxes + 6 * (size_t)(list->leaves[i + LEAVES_AHEAD].meta >> KEY_BITS));
        const Edge *box = boxes + 6 * (size_t)(list->leaves[i].meta >> KEY_BITS);
        const uint64_t value = (uint64_t)(int64_t)(as_float(list->leaves[i].bits) * scale);
        const int32_t low = offset[0][box[0]] + offset[1][box[2]] + offset[2][box[4]];
        const int32_t c = shape & 1 ? 0 : offset[0][box[1]] - offset[0][box[0]];
        const int32_t g = shape & 2 ? 0 : offset[1][box[3]] - offset[1][box[2]];
        const int32_t e = shape & 4 ? 0 : offset[2][box[5]] - offset[2][box[4]];
        uint64_t *at = sums + low;
        at[0] += value;
        if (!(shape & 4)) at[e] -= value;
        if (!(shape & 2)) at[g] -= value;
        if (!(shape & 6)) at[g + e] += value;
        if (!(shape & 1)) at[c] -= value;
        if (!(shape & 5)) at[c + e] += value;
        if (!(shape & 3)) at[c + g] += value;
        if (!(shape & 7)) at[c + g + e] -= value;
    }
}

/* Adds what a row has and the one before it had not, a list for each shape, and empties the lists. */
static void add_lists(uint64_t *sums, List *lists, const Edge *boxes, const Grid *grid, double scale) {
    if (grid->n_axes == 3) {
        add_corners_of_3(sums, &lists[0], boxes, grid->offset, scale, 0);
        add_corners_of_3(sums, &lists[1], boxes, grid->offset, scale, 1);
        add_corners_of_3(sums, &lists[2], boxes, grid->offset, scale, 2);
        add_corners_of_3(sums, &lists[3], boxes, grid->offset, scale, 3);
        add_corners_of_3(sums, &lists[4], boxes, grid->offset, scale, 4);
        add_corners_of_3(sums, &lists[5], boxes, grid->offset, scale, 5);
        add_corners_of_3(sums, &lists[6], boxes, grid->offset, scale, 6);
        add_corners_of_3(sums, &lists[7], boxes, grid->offset, scale, 7);
    } else {
        for (size_t shape = 0; shape >> grid->n_axes == 0; shape++) add_corners(sums, &lists[shape], boxes, grid, scale, shape);
    }
    for (size_t shape = 0; shape >> grid->n_axes == 0; shape++) lists[shape].count = 0;
}

/* Running sums: over the levels so far of each axis before the last three, for each place on the axes after it (upto); of
 * the first of the last three (plane) and of the second (line); and a line's own. */
typedef struct {
    uint64_t *upto[MOST_AXES], *plane, *line, *own;
} Running;

/* Prefix sums over all axes at once, written as float32. */
static void integrate(const uint64_t *sums, const Grid *grid, const Running *running, double unit, double base, float *out) {
    const size_t axes = grid->n_axes, outer = axes > 3 ? axes - 3 : 0;
    const size_t c_length = axes > 2 ? grid->length[axes - 3] : 1, g_length = axes > 1 ? grid->length[axes - 2] : 1;
    const size_t length = grid->length[axes - 1];
    uint64_t *line = running->line, *own = running->own;
    size_t index[MOST_AXES] = {0}, a;
    do {
        memset(running->plane, 0, g_length * length * sizeof *running->plane);
        for (size_t c = 0; c < c_length; c++) {
            memset(line, 0, length * sizeof *line);
            for (size_t g = 0; g < g_length; g++, out += length) {
                const uint64_t *in = sums + (c * (g_length + 1) + g) * (length + 1);
                uint64_t *above = running->plane + g * length;
                uint64_t run = 0;
                if (!outer) {
                    for (size_t e = 0; e < length; e++) {
                        run += in[e];
                        line[e] += run;
                        above[e] += line[e];
                        out[e] = (float)((double)(int64_t)above[e] * unit + base);
                    }
                    continue;
                }
                for (size_t e = 0; e < length; e++) {
                    run += in[e];
                    line[e] += run;
                    own[e] = above[e] += line[e];
                }
                size_t place = (c * g_length + g) * length, below = c_length * g_length * length;
                for (a = outer; a-- > 0;) {
                    uint64_t *upto = running->upto[a] + place;
                    if (index[a])
                        for (size_t e = 0; e < length; e++) own[e] = upto[e] += own[e];
                    else
                        memcpy(upto, own, length * sizeof *own);
                    place += index[a] * below;
                    below *= grid->length[a];
                }
                for (size_t e = 0; e < length; e++) out[e] = (float)((double)(int64_t)own[e] * unit + base);
            }
        }
        /* On to the next place on the outer axes, past the end edges of those that are through. */
        size_t step = (c_length + 1) * (g_length + 1) * (length + 1);
        sums += step;
        for (a = outer; a > 0 && ++index[a - 1] == grid->length[a - 1]; a--) {
            index[a - 1] = 0;
            sums += step;
            step *= grid->length[a - 1] + 1;
        }
    } while (a > 0);
}

/* Cells of a grid of the axes from one on, each so much longer. */
static size_t cells_from(const Grid *grid, size_t axis, size_t extra) {
    size_t cells = 1;
    for (size_t a = axis; a < grid->n_axes; a++) cells *= grid->length[a] + extra;
    return cells;
}

static int sweep_rows(const Forest *forest, const Edge *boxes, const float *features, size_t n_rows, const Grid *grid,
                      double scale, double base, float *out) {
    const size_t cells = cells_from(grid, 0, 1), configurations = cells_from(grid, 0, 0), shapes = shape_count(forest);
    const size_t line = grid->length[grid->n_axes - 1], above = grid->n_axes > 1 ? grid->length[grid->n_axes - 2] : 1;
    const uint32_t leaf_key = (uint32_t)(2 * forest->n_features);
    Frontier frontier = {0};
    Values values = {0};
    Running running = {.plane = malloc((above + 2) * line * sizeof *running.plane)};
    uint64_t *sums = malloc(cells * sizeof *sums);
    List *lists = calloc(ROWS * shapes, sizeof *lists);
    int ready = frontier_alloc(&frontier, forest) && values_alloc(&values, forest) && sums && running.plane && lists;
    if (ready) running.line = running.plane + above * line, running.own = running.line + line;
    for (size_t a = 0; a + 3 < grid->n_axes; a++) {
        running.upto[a] = malloc(cells_from(grid, a + 1, 0) * sizeof *running.upto[a]);
        ready &= running.upto[a] != NULL;
    }
    if (ready) set_levels(&values, grid, forest->n_features - grid->n_axes);
    for (size_t row = 0; ready && row < n_rows; row += ROWS) {
        const size_t rows = n_rows - row < ROWS ? n_rows - row : ROWS;
        set_values(&values, features + row * forest->n_features, forest->n_features, rows, forest->n_features - grid->n_axes);
        Walk walk = walk_of(forest, &values, rows);
        size_t found;
        while (ready && next_leaves(forest, &values, &walk, &frontier, &found))
            for (size_t i = 0; i < found; i++) {
                const Reached *one = &frontier.reached[i];
                const uint32_t shape = (one->leaf.meta & KEY_MASK) - leaf_key;
                ready &= walk.numbers ? append(&lists[one->rows * shapes + shape], one->leaf)
                         : walk.apart ? append_each(lists, shapes, shape, one->leaf, one->rows)
                                      : append_runs(lists, shapes, shape, one->leaf, one->rows, all_of(rows));
            }
        for (size_t r = 0; ready && r < rows; r++) {
            if (!r || walk.apart) memset(sums, 0, cells * sizeof *sums);
            add_lists(sums, lists + r * shapes, boxes, grid, scale);
            integrate(sums, grid, &running, 1.0 / scale, base, out + (row + r) * configurations);
        }
    }
    for (size_t i = 0; lists && i < ROWS * shapes; i++) free(lists[i].leaves);
    for (size_t a = 0; a + 3 < grid->n_axes; a++) free(running.upto[a]);
    frontier_free(&frontier);
    values_free(&values);
    free(running.plane);
    free(lists);
    free(sums);
    return ready;
}

static int predict_rows(const Forest *forest, const float *features, size_t n_rows, double scale, double base, float *out) {
    Frontier frontier = {0};
    Values values = {0};
    const int ready = frontier_alloc(&frontier, forest) && values_alloc(&values, forest);
    for (size_t row = 0; ready && row < n_rows; row += ROWS) {
        const size_t rows = n_rows - row < ROWS ? n_rows - row : ROWS;
        uint64_t sums[ROWS] = {0};
        set_values(&values, features + row * forest->n_features, forest->n_features, rows, forest->n_features);
        Walk walk = walk_of(forest, &values, rows);
        size_t found;
        while (next_leaves(forest, &values, &walk, &frontier, &found))
            for (size_t i = 0; i < found; i++) {
                const uint64_t value = (uint64_t)(int64_t)(as_float(frontier.reached[i].leaf.bits) * scale);
                uint32_t left = walk.numbers ? (uint32_t)1 << frontier.reached[i].rows : frontier.reached[i].rows;
                for (; left; left &= left - 1) sums[lowest(left)] += value;
            }
        for (size_t r = 0; r < rows; r++) out[row + r] = (float)((double)(int64_t)sums[r] * (1.0 / scale) + base);
    }
    frontier_free(&frontier);
    values_free(&values);
    return ready;
}

/* The first node that breaks its tree's pre-order, key, value or box, or n_nodes if there is none; -1 without memory. */
static Py_ssize_t first_fault(const Forest *forest, size_t n_nodes, const uint8_t *shapes, size_t n_boxes, double bound) {
    const uint32_t leaf_key = (uint32_t)(2 * forest->n_features);
    uint32_t *open = malloc((n_nodes + 1) * sizeof *open); /* right children still to come */
    if (!open) return -1;
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
    return (Py_ssize_t)fault;
}

static int address(PyObject *number, void *out) {
    void *pointer = PyLong_AsVoidPtr(number);
    if (!pointer && PyErr_Occurred()) return 0;
    *(void **)out = pointer;
    return 1;
}

static PyObject *done(int ready) {
    if (!ready) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

/* The levels' and offsets' addresses and the lengths of the axes, from three tuples of one length. */
static int grid_from(PyObject *levels, PyObject *lengths, PyObject *offsets, Grid *grid) {
    grid->n_axes = (size_t)PyTuple_Size(levels);
    if (grid->n_axes < 1 || grid->n_axes > MOST_AXES) {
        PyErr_Format(PyExc_ValueError, "%zu axes: expected 1 to %d", grid->n_axes, MOST_AXES);
        return 0;
    }
    for (size_t a = 0; a < grid->n_axes; a++) {
        const float *level;
        if (!address(PyTuple_GetItem(levels, (Py_ssize_t)a), &level)) return 0;
        if (!address(PyTuple_GetItem(offsets, (Py_ssize_t)a), &grid->offset[a])) return 0;
        grid->length[a] = PyLong_AsSize_t(PyTuple_GetItem(lengths, (Py_ssize_t)a));
        if (PyErr_Occurred()) return 0;
        grid->first[a] = level[0];
        grid->last[a] = level[grid->length[a] - 1];
    }
    return 1;
}

static PyObject *py_sweep(PyObject *self, PyObject *args) {
    (void)self;
    Forest forest;
    Grid grid;
    PyObject *levels, *lengths, *offsets;
    void *boxes, *features, *out;
    Py_ssize_t n_trees, n_features, n_rows;
    double scale, base;
    if (!PyArg_ParseTuple(args, "O&O&nnO&O&nO!O!O!ddO&", address, &forest.nodes, address, &forest.roots, &n_trees, &n_features,
                          address, &boxes, address, &features, &n_rows, &PyTuple_Type, &levels, &PyTuple_Type, &lengths,
                          &PyTuple_Type, &offsets, &scale, &base, address, &out))
        return NULL;
    if (!grid_from(levels, lengths, offsets, &grid)) return NULL;
    forest.n_trees = (size_t)n_trees;
    forest.n_features = (size_t)n_features;
    forest.n_axes = grid.n_axes;
    int ready;
    Py_BEGIN_ALLOW_THREADS;
    ready = sweep_rows(&forest, boxes, features, (size_t)n_rows, &grid, scale, base, out);
    Py_END_ALLOW_THREADS;
    return done(ready);
}

static PyObject *py_predict(PyObject *self, PyObject *args) {
    (void)self;
    Forest forest;
    void *features, *out;
    Py_ssize_t n_trees, n_features, n_axes, n_rows;
    double scale, base;
    if (!PyArg_ParseTuple(args, "O&O&nnnO&nddO&", address, &forest.nodes, address, &forest.roots, &n_trees, &n_features, &n_axes,
                          address, &features, &n_rows, &scale, &base, address, &out))
        return NULL;
    forest.n_trees = (size_t)n_trees;
    forest.n_features = (size_t)n_features;
    forest.n_axes = (size_t)n_axes;
    int ready;
    Py_BEGIN_ALLOW_THREADS;
    ready = predict_rows(&forest, features, (size_t)n_rows, scale, base, out);
    Py_END_ALLOW_THREADS;
    return done(ready);
}

static PyObject *py_first_fault(PyObject *self, PyObject *args) {
    (void)self;
    Forest forest;
    void *shapes;
    Py_ssize_t n_nodes, n_trees, n_features, n_boxes, fault;
    double bound;
    if (!PyArg_ParseTuple(args, "O&nO&nnO&nd", address, &forest.nodes, &n_nodes, address, &forest.roots, &n_trees, &n_features,
                          address, &shapes, &n_boxes, &bound))
        return NULL;
    forest.n_trees = (size_t)n_trees;
    forest.n_features = (size_t)n_features;
    forest.n_axes = 0; /* the shapes say it */
    Py_BEGIN_ALLOW_THREADS;
    fault = first_fault(&forest, (size_t)n_nodes, shapes, (size_t)n_boxes, bound);
    Py_END_ALLOW_THREADS;
    return fault < 0 ? PyErr_NoMemory() : PyLong_FromSsize_t(fault);
}

static PyMethodDef methods[] = {{"sweep", py_sweep, METH_VARARGS, NULL},
                                {"predict", py_predict, METH_VARARGS, NULL},
                                {"first_fault", py_first_fault, METH_VARARGS, NULL},
                                {NULL, NULL, 0, NULL}};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_sweep", "C core of ensemble.py; addresses are checked there.", 0,
                                    methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__sweep(void) { return PyModuleDef_Init(&module); }
