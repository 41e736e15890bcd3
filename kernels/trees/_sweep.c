// SPDX-License-Identifier: Apache-2.0
//
// The C core of ensemble.py: partial evaluation of trees over a frequency grid of one to six axes. node_table.py describes the
// data, and reference_sweep.py is the same algorithm in NumPy. This file is Python's door to it: forest.c checks a table,
// reach.c walks the trees, sweep.c sums over the grid. Everything else is checked in Python before it gets here.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "forest.h"
#include "sweep.h"

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
    Py_ssize_t n_nodes, n_trees, n_features, n_boxes;
    size_t fault;
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
    return fault == SIZE_MAX ? PyErr_NoMemory() : PyLong_FromSize_t(fault);
}

static PyMethodDef methods[] = {{"sweep", py_sweep, METH_VARARGS, NULL},
                                {"predict", py_predict, METH_VARARGS, NULL},
                                {"first_fault", py_first_fault, METH_VARARGS, NULL},
                                {NULL, NULL, 0, NULL}};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_sweep", "C core of ensemble.py; addresses are checked there.", 0,
                                    methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__sweep(void) { return PyModuleDef_Init(&module); }
