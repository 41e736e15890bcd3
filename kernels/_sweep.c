// SPDX-License-Identifier: Apache-2.0
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifndef TREES_PER_BLOCK
#define TREES_PER_BLOCK 64
#endif
#ifndef CHUNK_BYTES
#define CHUNK_BYTES (256 * 1024)
#endif
#ifndef CHUNK_ROWS
#define CHUNK_ROWS 16
#endif

enum { KEY_BITS = 10, KEY_MASK = (1 << KEY_BITS) - 1, FREQUENCIES = 3 };

typedef struct {
    uint32_t bits; /* float32: the threshold of a split, the value of a leaf */
    uint32_t meta; /* low KEY_BITS: key; above: distance to the right child, or a leaf's box */
} Node;

typedef struct {
    uint16_t edge[2 * FREQUENCIES]; /* first and end edge on each axis */
} Box;

/* What a key's feature may be: a split is passed on the left if low < threshold, on the right unless high < threshold. */
typedef struct {
    float low, high;
} Range;

typedef struct {
    const Node *nodes;
    const uint32_t *roots; /* n_trees + 1 */
    size_t n_trees, n_features;
} Forest;

typedef struct {
    uint32_t *now, *next;
    Node *leaves;
} Frontier;

static float as_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static size_t block_end(const Forest *forest, size_t first) {
    size_t end = first + TREES_PER_BLOCK;
    return end < forest->n_trees ? end : forest->n_trees;
}

static int frontier_alloc(Frontier *frontier, const Forest *forest) {
    size_t most = 0;
    for (size_t t = 0; t < forest->n_trees; t = block_end(forest, t)) {
        size_t nodes = forest->roots[block_end(forest, t)] - forest->roots[t];
        most = nodes > most ? nodes : most;
    }
    most += 2; /* the loop writes before it knows whether it keeps */
    frontier->now = malloc(most * sizeof *frontier->now);
    frontier->next = malloc(most * sizeof *frontier->next);
    frontier->leaves = malloc(most * sizeof *frontier->leaves);
    return frontier->now && frontier->next && frontier->leaves;
}

static void frontier_free(Frontier *frontier) {
    free(frontier->now);
    free(frontier->next);
    free(frontier->leaves);
}

/* All leaves of trees [first, end) that some configuration reaches; returns how many. */
static size_t reach(const Forest *forest, size_t first, size_t end, const Range *ranges, Frontier *frontier) {
    const Node *nodes = forest->nodes;
    const uint32_t leaf_key = (uint32_t)(2 * forest->n_features);
    uint32_t *now = frontier->now, *next = frontier->next;
    Node *leaves = frontier->leaves;
    size_t count = end - first, found = 0;
    memcpy(now, forest->roots + first, count * sizeof *now);
    while (count) {
        size_t kept = 0;
        for (size_t i = 0; i < count; i++) {
            const uint32_t at = now[i];
            const Node node = nodes[at];
            const uint32_t key = node.meta & KEY_MASK;
            const Range range = ranges[key];
            const float threshold = as_float(node.bits);
            next[kept] = at + 1;
            kept += range.low < threshold;
            next[kept] = at + (node.meta >> KEY_BITS);
            kept += !(range.high < threshold);
            leaves[found] = node;
            found += key == leaf_key;
        }
        uint32_t *swap = now;
        now = next;
        next = swap;
        count = kept;
    }
    return found;
}

static void set_ranges(Range *ranges, const float *row, size_t n) {
    for (size_t f = 0; f < n; f++) {
        const float x = row[f];
        const int missing = isnan(x);
        ranges[2 * f] = missing ? (Range){INFINITY, INFINITY} : (Range){x, x};
        ranges[2 * f + 1] = missing ? (Range){-INFINITY, -INFINITY} : (Range){x, x};
    }
}

/* Adds each leaf to the corners of its box; unsigned, so that a passing overflow is defined and cancels. */
static void add_corners(uint64_t *sums, const Node *leaves, size_t count, const Box *boxes,
                        const int32_t *const offset[FREQUENCIES], double scale) {
    for (size_t i = 0; i < count; i++) {
        const Box *box = &boxes[leaves[i].meta >> KEY_BITS];
        const uint64_t value = (uint64_t)(int64_t)(as_float(leaves[i].bits) * scale);
        const int32_t c0 = offset[0][box->edge[0]], c1 = offset[0][box->edge[1]];
        const int32_t g0 = offset[1][box->edge[2]], g1 = offset[1][box->edge[3]];
        const int32_t e0 = offset[2][box->edge[4]], e1 = offset[2][box->edge[5]];
        sums[c0 + g0 + e0] += value;
        sums[c0 + g0 + e1] -= value;
        sums[c0 + g1 + e0] -= value;
        sums[c0 + g1 + e1] += value;
        sums[c1 + g0 + e0] -= value;
        sums[c1 + g0 + e1] += value;
        sums[c1 + g1 + e0] += value;
        sums[c1 + g1 + e1] -= value;
    }
}

/* Prefix sums over the three axes at once, written as float32; leaves sums zeroed for the next row. */
static void integrate(uint64_t *sums, const size_t n[FREQUENCIES], uint64_t *plane, uint64_t *line, double unit, double base,
                      float *out) {
    memset(plane, 0, n[1] * n[2] * sizeof *plane);
    for (size_t c = 0; c < n[0]; c++) {
        memset(line, 0, n[2] * sizeof *line);
        for (size_t g = 0; g < n[1]; g++) {
            const uint64_t *in = sums + (c * (n[1] + 1) + g) * (n[2] + 1);
            uint64_t *above = plane + g * n[2];
            uint64_t run = 0;
            for (size_t e = 0; e < n[2]; e++) {
                run += in[e];
                line[e] += run;
                above[e] += line[e];
                *out++ = (float)((double)(int64_t)above[e] * unit + base);
            }
        }
    }
    memset(sums, 0, (n[0] + 1) * (n[1] + 1) * (n[2] + 1) * sizeof *sums);
}

static int sweep_rows(const Forest *forest, const Box *boxes, const float *features, size_t n_rows,
                      const float levels[FREQUENCIES][2], const size_t n[FREQUENCIES],
                      const int32_t *const offset[FREQUENCIES], double scale, double base, float *out) {
    const size_t cells = (n[0] + 1) * (n[1] + 1) * (n[2] + 1), keys = 2 * forest->n_features + 1;
    size_t chunk = CHUNK_BYTES / (cells * sizeof(uint64_t));
    chunk = chunk < 1 ? 1 : chunk > CHUNK_ROWS ? CHUNK_ROWS : chunk;
    chunk = chunk > n_rows ? n_rows : chunk;
    Frontier frontier;
    uint64_t *sums = calloc(chunk * cells, sizeof *sums);
    uint64_t *plane = malloc((n[1] + 1) * n[2] * sizeof *plane);
    Range *ranges = malloc(chunk * keys * sizeof *ranges);
    const int ready = frontier_alloc(&frontier, forest) && sums && plane && ranges;
    const double unit = 1.0 / scale;
    for (size_t row = 0; ready && row < n_rows; row += chunk) {
        const size_t rows = n_rows - row < chunk ? n_rows - row : chunk;
        for (size_t r = 0; r < rows; r++) {
            Range *own = ranges + r * keys;
            set_ranges(own, features + (row + r) * forest->n_features, forest->n_features - FREQUENCIES);
            for (size_t a = 0; a < FREQUENCIES; a++) {
                const size_t key = 2 * (forest->n_features - FREQUENCIES + a);
                own[key] = own[key + 1] = (Range){levels[a][0], levels[a][1]};
            }
            own[keys - 1] = (Range){INFINITY, -INFINITY}; /* a leaf goes nowhere */
        }
        for (size_t first = 0; first < forest->n_trees; first = block_end(forest, first))
            for (size_t r = 0; r < rows; r++) {
                const size_t found = reach(forest, first, block_end(forest, first), ranges + r * keys, &frontier);
                add_corners(sums + r * cells, frontier.leaves, found, boxes, offset, scale);
            }
        for (size_t r = 0; r < rows; r++)
            integrate(sums + r * cells, n, plane, plane + n[1] * n[2], unit, base, out + (row + r) * n[0] * n[1] * n[2]);
    }
    frontier_free(&frontier);
    free(ranges);
    free(plane);
    free(sums);
    return ready;
}

static int predict_rows(const Forest *forest, const float *features, size_t n_rows, double scale, double base, float *out) {
    const size_t keys = 2 * forest->n_features + 1;
    Frontier frontier;
    Range *ranges = malloc(keys * sizeof *ranges);
    const int ready = frontier_alloc(&frontier, forest) && ranges;
    for (size_t row = 0; ready && row < n_rows; row++) {
        uint64_t sum = 0;
        set_ranges(ranges, features + row * forest->n_features, forest->n_features);
        ranges[keys - 1] = (Range){INFINITY, -INFINITY};
        for (size_t first = 0; first < forest->n_trees; first = block_end(forest, first)) {
            const size_t found = reach(forest, first, block_end(forest, first), ranges, &frontier);
            for (size_t i = 0; i < found; i++) sum += (uint64_t)(int64_t)(as_float(frontier.leaves[i].bits) * scale);
        }
        out[row] = (float)((double)(int64_t)sum * (1.0 / scale) + base);
    }
    frontier_free(&frontier);
    free(ranges);
    return ready;
}

/* The first slot that is not part of a tree in pre-order, or n_slots if there is none; -1 without memory. */
static Py_ssize_t first_fault(const Forest *forest, size_t n_slots, size_t n_boxes) {
    const uint32_t leaf_key = (uint32_t)(2 * forest->n_features);
    uint32_t *open = malloc((n_slots + 1) * sizeof *open); /* right children still to come */
    if (!open) return -1;
    size_t fault = n_slots;
    for (size_t t = 0; t < forest->n_trees && fault == n_slots; t++) {
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
                good = key == leaf_key && isfinite(value) && rest < n_boxes && (depth ? open[--depth] : end) == i + 1;
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

static PyObject *py_sweep(PyObject *self, PyObject *args) {
    (void)self;
    Forest forest;
    void *boxes, *features, *levels[FREQUENCIES], *offset[FREQUENCIES], *out;
    Py_ssize_t n_trees, n_features, n_rows, n[FREQUENCIES];
    double scale, base;
    if (!PyArg_ParseTuple(args, "O&O&nnO&O&nO&O&O&(nnn)O&O&O&ddO&", address, &forest.nodes, address, &forest.roots, &n_trees,
                          &n_features, address, &boxes, address, &features, &n_rows, address, &levels[0], address, &levels[1],
                          address, &levels[2], &n[0], &n[1], &n[2], address, &offset[0], address, &offset[1], address, &offset[2],
                          &scale, &base, address, &out))
        return NULL;
    forest.n_trees = (size_t)n_trees;
    forest.n_features = (size_t)n_features;
    const size_t sizes[FREQUENCIES] = {(size_t)n[0], (size_t)n[1], (size_t)n[2]};
    const int32_t *const offsets[FREQUENCIES] = {offset[0], offset[1], offset[2]};
    float ends[FREQUENCIES][2];
    for (size_t a = 0; a < FREQUENCIES; a++) {
        ends[a][0] = ((const float *)levels[a])[0];
        ends[a][1] = ((const float *)levels[a])[sizes[a] - 1];
    }
    int ready;
    Py_BEGIN_ALLOW_THREADS;
    ready = sweep_rows(&forest, boxes, features, (size_t)n_rows, (const float(*)[2])ends, sizes, offsets, scale, base, out);
    Py_END_ALLOW_THREADS;
    return done(ready);
}

static PyObject *py_predict(PyObject *self, PyObject *args) {
    (void)self;
    Forest forest;
    void *features, *out;
    Py_ssize_t n_trees, n_features, n_rows;
    double scale, base;
    if (!PyArg_ParseTuple(args, "O&O&nnO&nddO&", address, &forest.nodes, address, &forest.roots, &n_trees, &n_features, address,
                          &features, &n_rows, &scale, &base, address, &out))
        return NULL;
    forest.n_trees = (size_t)n_trees;
    forest.n_features = (size_t)n_features;
    int ready;
    Py_BEGIN_ALLOW_THREADS;
    ready = predict_rows(&forest, features, (size_t)n_rows, scale, base, out);
    Py_END_ALLOW_THREADS;
    return done(ready);
}

static PyObject *py_first_fault(PyObject *self, PyObject *args) {
    (void)self;
    Forest forest;
    Py_ssize_t n_slots, n_trees, n_features, n_boxes, fault;
    if (!PyArg_ParseTuple(args, "O&nO&nnn", address, &forest.nodes, &n_slots, address, &forest.roots, &n_trees, &n_features,
                          &n_boxes))
        return NULL;
    forest.n_trees = (size_t)n_trees;
    forest.n_features = (size_t)n_features;
    Py_BEGIN_ALLOW_THREADS;
    fault = first_fault(&forest, (size_t)n_slots, (size_t)n_boxes);
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
