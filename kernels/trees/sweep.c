// SPDX-License-Identifier: Apache-2.0
//
// Sums the leaves that rows reach over their boxes of the grid: what a leaf adds stands at its box's corners until prefix sums
// spread it. Rows are summed one after the other on the same sums: a leaf that some rows in succession reach is added with the
// first of them and taken away after the last. Until then leaves wait in lists by row and by shape of box, so that a box that is
// open on an axis costs no corners there.
#include "sweep.h"

#include <stdlib.h>
#include <string.h>

#include "reach.h"

enum { MOST_CORNERS = 1 << MOST_AXES, LEAVES_AHEAD = 12 };

typedef struct {
    Node *leaves;
    size_t count, room;
} List;

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

int sweep_rows(const Forest *forest, const Edge *boxes, const float *features, size_t n_rows, const Grid *grid,
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

int predict_rows(const Forest *forest, const float *features, size_t n_rows, double scale, double base, float *out) {
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
