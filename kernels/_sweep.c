// SPDX-License-Identifier: Apache-2.0
//
// The C core of ensemble.py: partial evaluation of trees over a frequency grid of one to six axes. node_table.py describes the data, and
// reference_sweep.py is the same algorithm in NumPy. Everything is checked in Python before it gets here; nothing below
// leaves its buffers for any table that first_fault() accepts.
//
// Where the time goes, for 1,500 trees of depth 10 (14 MB of nodes) on 3,654 configurations: a row visits 25 nodes per tree
// and reaches 4 to 5 leaves of each. About 60% is reach(), 20% append(), 15% add_corners(), under 5% integrate(). A plain
// walk spends it waiting: for nodes that are in no near cache, and after branches that cannot be predicted. So:
//  - reach() goes level by level over a frontier of (node, row): a few trees times a chunk of rows. Its steps do not depend
//    on each other, and none branches on data: both children are always stored, and kept by adding 0 or 1 to the count.
//  - Right children are prefetched when they enter the frontier (left ones are next to their parent). This is worth 1.6x
//    where the table is larger than the second-level cache.
//  - A tree is read once per chunk of rows. Leaves wait in lists by row and by shape of box, so that one row's sums at a
//    time are in cache, and so that a box that is open on an axis costs no corners there (3 instead of 8 on average).
// What is left is 25 to 30 instructions a visit: about 2 ns at four per cycle and 3 GHz, where 3 to 3.5 ns are measured. To go
// further, fewer nodes would have to be visited (rows that agree on a split could share the visit).
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_BITS = 10, KEY_MASK = (1 << KEY_BITS) - 1, MOST_AXES = 6, MOST_CORNERS = 1 << MOST_AXES };

/* Found by trial: more rows gain little and their lists leave the cache; a frontier that starts with fewer steps runs dry. */
enum { ROWS_PER_CHUNK = 32, STEPS_PER_BLOCK = 128, LEAVES_AHEAD = 12 };

/* Bounds the memory of a frontier for very large trees. */
enum { MOST_STEPS = 1 << 22 };

#if defined(__GNUC__)
#define PREFETCH(address) __builtin_prefetch(address)
#else
#define PREFETCH(address) ((void)(address))
#endif

typedef struct {
    uint32_t bits; /* float32: the threshold of a split, the value of a leaf */
    uint32_t meta; /* low KEY_BITS: key; above: distance to the right child, or a leaf's box */
} Node;

typedef uint16_t Edge; /* a box is its first and end edge on each axis */

/* What a key's feature may be: a split is passed on the left if low < threshold, on the right unless high < threshold. */
typedef struct {
    float low, high;
} Range;

typedef struct {
    const Node *nodes;
    const uint32_t *roots; /* n_trees + 1 */
    size_t n_trees, n_features, n_axes; /* the last n_axes features are frequencies */
} Forest;

typedef struct {
    size_t n_axes, length[MOST_AXES];
    Range ends[MOST_AXES];            /* the first and the last level */
    const int32_t *offset[MOST_AXES]; /* where in a row's sums each edge lies */
} Grid;

/* A node to look at, for the row whose ranges start there. */
typedef struct {
    uint32_t node, ranges;
} Step;

/* A leaf that was reached, and the list it goes to: row and shape of its box. */
typedef struct {
    Node leaf;
    uint32_t list;
} Reached;

typedef struct {
    Node *leaves;
    size_t count, room;
} List;

typedef struct {
    size_t trees; /* that are walked at a time */
    Step *now, *next;
    Reached *reached;
} Frontier;

static float as_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static size_t shape_count(const Forest *forest) { return (size_t)1 << forest->n_axes; }

static size_t key_count(const Forest *forest) { return 2 * forest->n_features + shape_count(forest); }

static size_t block_end(const Forest *forest, const Frontier *frontier, size_t first) {
    const size_t end = first + frontier->trees;
    return end < forest->n_trees ? end : forest->n_trees;
}

/* Rows that go through the trees together. */
static size_t chunk_rows(const Forest *forest, size_t rows) {
    size_t largest = 1;
    for (size_t t = 0; t < forest->n_trees; t++) {
        const size_t nodes = forest->roots[t + 1] - forest->roots[t];
        largest = nodes > largest ? nodes : largest;
    }
    const size_t fit = largest < MOST_STEPS ? MOST_STEPS / largest : 1;
    rows = rows < ROWS_PER_CHUNK ? rows : ROWS_PER_CHUNK;
    rows = rows < fit ? rows : fit;
    return rows ? rows : 1;
}

static int frontier_alloc(Frontier *frontier, const Forest *forest, size_t rows) {
    frontier->trees = rows < STEPS_PER_BLOCK ? STEPS_PER_BLOCK / rows : 1;
    size_t most = 0;
    for (size_t t = 0; t < forest->n_trees; t = block_end(forest, frontier, t)) {
        const size_t nodes = forest->roots[block_end(forest, frontier, t)] - forest->roots[t];
        most = nodes > most ? nodes : most;
    }
    most = most * rows + 2; /* the loop writes before it knows whether it keeps */
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

/* All leaves of trees [first, end) that some configuration reaches, for each row; returns how many. */
static size_t reach(const Forest *forest, size_t first, size_t end, const Range *ranges, size_t rows, Frontier *frontier) {
    const Node *nodes = forest->nodes;
    const uint32_t leaf_key = (uint32_t)(2 * forest->n_features), keys = (uint32_t)key_count(forest);
    Step *now = frontier->now, *next = frontier->next;
    Reached *reached = frontier->reached;
    size_t count = 0, found = 0;
    for (size_t t = first; t < end; t++)
        for (uint32_t r = 0; r < rows; r++) now[count++] = (Step){forest->roots[t], r * keys};
    while (count) {
        size_t kept = 0;
        for (size_t i = 0; i < count; i++) {
            const Step step = now[i];
            const Node node = nodes[step.node];
            const uint32_t key = node.meta & KEY_MASK, slot = step.ranges + key;
            const float low = ranges[slot].low, high = ranges[slot].high, threshold = as_float(node.bits);
            next[kept] = (Step){step.node + 1, step.ranges};
            kept += low < threshold;
            next[kept] = (Step){step.node + (node.meta >> KEY_BITS), step.ranges};
            PREFETCH(nodes + next[kept].node);
            kept += !(high < threshold);
            reached[found] = (Reached){node, slot};
            found += key >= leaf_key;
        }
        Step *swap = now;
        now = next;
        next = swap;
        count = kept;
    }
    return found;
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

static void set_ranges(Range *ranges, const float *row, size_t n) {
    for (size_t f = 0; f < n; f++) {
        const float x = row[f];
        const int missing = isnan(x);
        ranges[2 * f] = missing ? (Range){INFINITY, INFINITY} : (Range){x, x};
        ranges[2 * f + 1] = missing ? (Range){-INFINITY, -INFINITY} : (Range){x, x};
    }
}

/* Nothing below a leaf is ever looked at. */
static void end_ranges(const Forest *forest, Range *ranges) {
    for (size_t key = 2 * forest->n_features; key < key_count(forest); key++) ranges[key] = (Range){INFINITY, -INFINITY};
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

/* Adds one row's leaves, a list for each shape, and empties the lists. */
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
    const size_t keys = key_count(forest), fixed = forest->n_features - forest->n_axes, chunk = chunk_rows(forest, n_rows);
    Frontier frontier;
    const size_t line = grid->length[grid->n_axes - 1], above = grid->n_axes > 1 ? grid->length[grid->n_axes - 2] : 1;
    Running running = {.plane = malloc((above + 2) * line * sizeof *running.plane)};
    uint64_t *sums = calloc(cells, sizeof *sums);
    Range *ranges = malloc(chunk * keys * sizeof *ranges);
    List *lists = calloc(chunk * keys, sizeof *lists); /* numbered as the ranges are; only those of leaf keys are used */
    int ready = frontier_alloc(&frontier, forest, chunk) && sums && running.plane && ranges && lists;
    if (ready) running.line = running.plane + above * line, running.own = running.line + line;
    for (size_t a = 0; a + 3 < grid->n_axes; a++) {
        running.upto[a] = malloc(cells_from(grid, a + 1, 0) * sizeof *running.upto[a]);
        ready &= running.upto[a] != NULL;
    }
    for (size_t row = 0; ready && row < n_rows; row += chunk) {
        const size_t rows = n_rows - row < chunk ? n_rows - row : chunk;
        for (size_t r = 0; r < rows; r++) {
            Range *own = ranges + r * keys;
            set_ranges(own, features + (row + r) * forest->n_features, fixed);
            for (size_t a = 0; a < grid->n_axes; a++) own[2 * (fixed + a)] = own[2 * (fixed + a) + 1] = grid->ends[a];
            end_ranges(forest, own);
        }
        for (size_t first = 0; first < forest->n_trees; first = block_end(forest, &frontier, first)) {
            const size_t found = reach(forest, first, block_end(forest, &frontier, first), ranges, rows, &frontier);
            for (size_t i = 0; i < found; i++) ready &= append(&lists[frontier.reached[i].list], frontier.reached[i].leaf);
        }
        for (size_t r = 0; ready && r < rows; r++) {
            add_lists(sums, lists + r * keys + keys - shapes, boxes, grid, scale);
            integrate(sums, grid, &running, 1.0 / scale, base, out + (row + r) * configurations);
            memset(sums, 0, cells * sizeof *sums); /* for the next row */
        }
    }
    for (size_t i = 0; lists && i < chunk * keys; i++) free(lists[i].leaves);
    for (size_t a = 0; a + 3 < grid->n_axes; a++) free(running.upto[a]);
    frontier_free(&frontier);
    free(running.plane);
    free(lists);
    free(ranges);
    free(sums);
    return ready;
}

static int predict_rows(const Forest *forest, const float *features, size_t n_rows, double scale, double base, float *out) {
    Frontier frontier;
    Range *ranges = malloc(key_count(forest) * sizeof *ranges);
    const int ready = frontier_alloc(&frontier, forest, 1) && ranges;
    for (size_t row = 0; ready && row < n_rows; row++) {
        uint64_t sum = 0;
        set_ranges(ranges, features + row * forest->n_features, forest->n_features);
        end_ranges(forest, ranges);
        for (size_t first = 0; first < forest->n_trees; first = block_end(forest, &frontier, first)) {
            const size_t found = reach(forest, first, block_end(forest, &frontier, first), ranges, 1, &frontier);
            for (size_t i = 0; i < found; i++) sum += (uint64_t)(int64_t)(as_float(frontier.reached[i].leaf.bits) * scale);
        }
        out[row] = (float)((double)(int64_t)sum * (1.0 / scale) + base);
    }
    frontier_free(&frontier);
    free(ranges);
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
        grid->ends[a] = (Range){level[0], level[grid->length[a] - 1]};
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
