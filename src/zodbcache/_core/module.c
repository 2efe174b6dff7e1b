/* The C core as Python sees it: four types, no logic.
 *
 * Every method runs under the GIL from beginning to end, and is atomic by that.
 * Ids are int64 in Python and uint64 here, the same 64 bits; where a method
 * takes 8 bytes, they are big-endian.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>
#include <stddef.h>

#include "deltas.h"
#include "revision.h"
#include "store.h"

/* ---- conversions ------------------------------------------------------- */

static inline uint64_t
big_endian(const char *bytes)
{
    uint64_t value;
    memcpy(&value, bytes, sizeof value);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    value = __builtin_bswap64(value);
#endif
    return value;
}

static inline PyObject *
bytes_of(uint64_t value)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    value = __builtin_bswap64(value);
#endif
    return PyBytes_FromStringAndSize((const char *)&value, sizeof value);
}

/* An 8-byte id.  Sets TypeError or ValueError and returns false otherwise. */
static inline bool
id_from_bytes(PyObject *object, uint64_t *id)
{
    if (!PyBytes_Check(object)) {
        PyErr_Format(PyExc_TypeError, "an id is 8 bytes, not %.100s", Py_TYPE(object)->tp_name);
        return false;
    }
    if (PyBytes_GET_SIZE(object) != sizeof *id) {
        PyErr_Format(PyExc_ValueError, "an id has 8 bytes, not %zd", PyBytes_GET_SIZE(object));
        return false;
    }
    *id = big_endian(PyBytes_AS_STRING(object));
    return true;
}

static bool
id_from_int(PyObject *object, uint64_t *id)
{
    long long value = PyLong_AsLongLong(object);
    if (value == -1 && PyErr_Occurred()) {
        return false;
    }
    *id = (uint64_t)value;
    return true;
}

/* A tid: an int64 that is not negative. */
static bool
tid_from_int(PyObject *object, uint64_t *tid)
{
    if (!id_from_int(object, tid)) {
        return false;
    }
    if ((int64_t)*tid < 0) {
        PyErr_SetString(PyExc_ValueError, "a tid is not negative");
        return false;
    }
    return true;
}

static PyObject *
int_of(uint64_t id)
{
    return PyLong_FromLongLong((long long)id);
}

static bool
expect(Py_ssize_t count, Py_ssize_t expected, const char *name)
{
    if (count == expected) {
        return true;
    }
    PyErr_Format(PyExc_TypeError, "%s() takes %zd arguments (%zd given)", name, expected, count);
    return false;
}

/* The oid and tid of a name: any pair of ints. */
static bool
name_from(PyObject *object, uint64_t *oid, uint64_t *tid)
{
    PyObject *pair = PySequence_Fast(object, "a name is (oid, tid)");
    if (pair == NULL) {
        return false;
    }
    bool good = PySequence_Fast_GET_SIZE(pair) == 2;
    if (!good) {
        PyErr_SetString(PyExc_TypeError, "a name is (oid, tid)");
    }
    good = good && id_from_int(PySequence_Fast_GET_ITEM(pair, 0), oid) &&
           tid_from_int(PySequence_Fast_GET_ITEM(pair, 1), tid);
    Py_DECREF(pair);
    return good;
}

static bool
state_from(PyObject *object, const char **state, size_t *state_bytes)
{
    if (!PyBytes_Check(object)) {
        PyErr_Format(PyExc_TypeError, "a state is bytes, not %.100s", Py_TYPE(object)->tp_name);
        return false;
    }
    *state = PyBytes_AS_STRING(object);
    *state_bytes = (size_t)PyBytes_GET_SIZE(object);
    return true;
}

static bool
frequency_from(PyObject *object, unsigned *frequency)
{
    uint64_t value;
    if (!id_from_int(object, &value)) {
        return false;
    }
    *frequency = value < FREQUENCY_MAX ? (unsigned)value : FREQUENCY_MAX;
    return true;
}

/* ---- Store ------------------------------------------------------------- */

/* Tids as bytes objects, shared by what was committed together: no allocation
 * for them at most hits, and less memory in the connections' caches. */
enum { SHARED_TIDS = 1024 };

typedef struct {
    uint64_t tid;
    PyObject *bytes; /* NULL, or the eight bytes of tid */
} shared_tid;

typedef struct {
    PyObject_HEAD
    store store;
    shared_tid shared_tids[SHARED_TIDS];
} Store;

#define STORE(self) (&((Store *)(self))->store)

static PyObject *
tid_bytes(PyObject *self, uint64_t tid)
{
    shared_tid *shared = &((Store *)self)->shared_tids[oid_hash(tid) % SHARED_TIDS];
    if (shared->bytes == NULL || shared->tid != tid) {
        PyObject *bytes = bytes_of(tid);
        if (bytes == NULL) {
            return NULL;
        }
        Py_XSETREF(shared->bytes, bytes);
        shared->tid = tid;
    }
    return Py_NewRef(shared->bytes);
}

static PyObject *
Store_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"limit_bytes", "object_max_bytes", NULL};
    Py_ssize_t limit_bytes, object_max_bytes;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "nn:Store", names, &limit_bytes,
                                     &object_max_bytes)) {
        return NULL;
    }
    if (limit_bytes < (Py_ssize_t)STORE_LIMIT_MIN_BYTES ||
        (size_t)limit_bytes > STORE_LIMIT_MAX_BYTES || object_max_bytes < 1) {
        PyErr_Format(PyExc_ValueError,
                     "limit_bytes must be between %zu and %zu, object_max_bytes positive",
                     STORE_LIMIT_MIN_BYTES, STORE_LIMIT_MAX_BYTES);
        return NULL;
    }
    Store *self = (Store *)type->tp_alloc(type, 0);
    if (self != NULL && !store_open(&self->store, (size_t)limit_bytes,
                                    (size_t)object_max_bytes)) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    return (PyObject *)self;
}

static void
Store_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    store_close(STORE(self));
    for (int i = 0; i < SHARED_TIDS; i++) {
        Py_XDECREF(((Store *)self)->shared_tids[i].bytes);
    }
    type->tp_free(self);
    Py_DECREF(type);
}

/* (state, tid, end) of a revision. */
static PyObject *
answer(PyObject *self, const revision *r)
{
    PyObject *state = PyBytes_FromStringAndSize(revision_state(r),
                                                (Py_ssize_t)revision_state_bytes(r));
    PyObject *tid = tid_bytes(self, r->tid);
    PyObject *end = r->closed ? bytes_of(revision_end(r)) : Py_NewRef(Py_None);
    PyObject *result = state && tid && end ? PyTuple_New(3) : NULL;
    if (result == NULL) {
        Py_XDECREF(state);
        Py_XDECREF(tid);
        Py_XDECREF(end);
        return NULL;
    }
    PyTuple_SET_ITEM(result, 0, state);
    PyTuple_SET_ITEM(result, 1, tid);
    PyTuple_SET_ITEM(result, 2, end);
    return result;
}

/* (state, tid) of a revision. */
static PyObject *
short_answer(PyObject *self, const revision *r)
{
    PyObject *state = PyBytes_FromStringAndSize(revision_state(r),
                                                (Py_ssize_t)revision_state_bytes(r));
    PyObject *tid = tid_bytes(self, r->tid);
    PyObject *result = state && tid ? PyTuple_New(2) : NULL;
    if (result == NULL) {
        Py_XDECREF(state);
        Py_XDECREF(tid);
        return NULL;
    }
    PyTuple_SET_ITEM(result, 0, state);
    PyTuple_SET_ITEM(result, 1, tid);
    return result;
}

static PyObject *
Store_load_before(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    uint64_t oid, before;
    if (!expect(count, 2, "load_before") || !id_from_bytes(args[0], &oid) ||
        !id_from_bytes(args[1], &before)) {
        return NULL;
    }
    const revision *r = store_load_before(STORE(self), oid, before);
    return r == NULL ? Py_NewRef(Py_None) : answer(self, r);
}

static PyObject *
Store_insert(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    uint64_t oid, tid, end;
    const char *state;
    size_t state_bytes;
    if (!expect(count, 4, "insert") || !id_from_int(args[0], &oid) ||
        !id_from_int(args[1], &tid) || !id_from_int(args[2], &end) ||
        !state_from(args[3], &state, &state_bytes)) {
        return NULL;
    }
    return PyBool_FromLong(store_insert(STORE(self), oid, tid, end, state, state_bytes));
}

static PyObject *
Store_restore(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    uint64_t oid, tid;
    unsigned frequency;
    const char *state;
    size_t state_bytes;
    if (!expect(count, 4, "restore") || !id_from_int(args[0], &oid) ||
        !id_from_int(args[1], &tid) || !state_from(args[2], &state, &state_bytes) ||
        !frequency_from(args[3], &frequency)) {
        return NULL;
    }
    return PyBool_FromLong(store_restore(STORE(self), oid, tid, state, state_bytes, frequency));
}

static PyObject *
Store_load_at(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    uint64_t oid, at;
    if (!expect(count, 2, "load_at") || !id_from_bytes(args[0], &oid) ||
        !tid_from_int(args[1], &at)) {
        return NULL;
    }
    const revision *r = store_load_at(STORE(self), oid, at);
    return r == NULL ? Py_NewRef(Py_None) : short_answer(self, r);
}

/* Runs no Python code between the objects, so that the dict stays as it is. */
static PyObject *
Store_insert_own(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    uint64_t oid, tid;
    if (!expect(count, 2, "insert_own") || !tid_from_int(args[1], &tid)) {
        return NULL;
    }
    if (!PyDict_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "states are a dict");
        return NULL;
    }
    PyObject *key, *value;
    Py_ssize_t position = 0;
    while (PyDict_Next(args[0], &position, &key, &value)) {
        const char *state;
        size_t state_bytes;
        if (!id_from_bytes(key, &oid)) {
            return NULL;
        }
        store_end(STORE(self), oid, tid, ENDED_LATER);
        if (value == Py_None) {
            continue;
        }
        if (!state_from(value, &state, &state_bytes)) {
            return NULL;
        }
        store_insert(STORE(self), oid, tid, 0, state, state_bytes);
    }
    Py_RETURN_NONE;
}

static PyObject *
Store_holds(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    uint64_t oid, at;
    if (!expect(count, 2, "holds") || !id_from_bytes(args[0], &oid) ||
        !tid_from_int(args[1], &at)) {
        return NULL;
    }
    return PyBool_FromLong(store_holds(STORE(self), oid, at));
}

static PyObject *
Store_recall(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    uint64_t oid, tid;
    if (!expect(count, 2, "recall") || !id_from_bytes(args[0], &oid) ||
        !id_from_bytes(args[1], &tid)) {
        return NULL;
    }
    const revision *r = store_revision(STORE(self), oid, tid);
    return r == NULL ? Py_NewRef(Py_None)
                     : PyBytes_FromStringAndSize(revision_state(r),
                                                 (Py_ssize_t)revision_state_bytes(r));
}

static PyObject *
Store_promote(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    uint64_t oid, tid;
    unsigned frequency;
    const char *state;
    size_t state_bytes;
    if (!expect(count, 4, "promote") || !id_from_int(args[0], &oid) ||
        !id_from_int(args[1], &tid) || !state_from(args[2], &state, &state_bytes) ||
        !frequency_from(args[3], &frequency)) {
        return NULL;
    }
    return PyBool_FromLong(store_promote(STORE(self), oid, tid, state, state_bytes, frequency));
}

static bool
end_all(store *s, PyObject *oids, uint64_t tid, enum ending ending)
{
    PyObject *sequence = PySequence_Fast(oids, "the oids of a change are a list");
    if (sequence == NULL) {
        return false;
    }
    bool good = true;
    for (Py_ssize_t i = 0; good && i < PySequence_Fast_GET_SIZE(sequence); i++) {
        uint64_t oid;
        good = id_from_bytes(PySequence_Fast_GET_ITEM(sequence, i), &oid);
        if (good) {
            store_end(s, oid, tid, ending);
        }
    }
    Py_DECREF(sequence);
    return good;
}

static PyObject *
Store_advance(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    uint64_t checkpoint;
    if (!expect(count, 2, "advance") || !tid_from_int(args[1], &checkpoint)) {
        return NULL;
    }
    PyObject *changes = PySequence_Fast(args[0], "changes are a list");
    if (changes == NULL) {
        return NULL;
    }
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(changes); i++) {
        PyObject *change = PySequence_Fast_GET_ITEM(changes, i), *oids, *exact;
        long long tid;
        if (!PyTuple_Check(change)) {
            PyErr_SetString(PyExc_TypeError, "a change is (oids, tid, exact)");
            Py_DECREF(changes);
            return NULL;
        }
        if (!PyArg_ParseTuple(change, "OLO!;a change is (oids, tid, exact)", &oids, &tid,
                              &PyBool_Type, &exact) ||
            !end_all(STORE(self), oids, (uint64_t)tid,
                     exact == Py_True ? ENDED_EXACTLY : ENDED_UNKNOWN)) {
            Py_DECREF(changes);
            return NULL;
        }
    }
    Py_DECREF(changes);
    store_raise_checkpoint(STORE(self), checkpoint); /* I1: only now */
    Py_RETURN_NONE;
}

static PyObject *
Store_follow(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    uint64_t checkpoint, oid, tid;
    if (!expect(count, 2, "follow") || !tid_from_int(args[1], &checkpoint)) {
        return NULL;
    }
    PyObject *names = PySequence_Fast(args[0], "names are a list");
    if (names == NULL) {
        return NULL;
    }
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(names); i++) {
        if (!name_from(PySequence_Fast_GET_ITEM(names, i), &oid, &tid)) {
            Py_DECREF(names);
            return NULL;
        }
        store_end(STORE(self), oid, tid, ENDED_LATER);
    }
    Py_DECREF(names);
    store_raise_checkpoint(STORE(self), checkpoint); /* I1: only now */
    Py_RETURN_NONE;
}

static PyObject *
Store_forget(PyObject *self, PyObject *arg)
{
    uint64_t oid;
    if (!id_from_int(arg, &oid)) {
        return NULL;
    }
    store_forget(STORE(self), oid);
    Py_RETURN_NONE;
}

static PyObject *
Store_clear(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    store_clear(STORE(self));
    Py_RETURN_NONE;
}

static PyObject *
Store_restart(PyObject *self, PyObject *arg)
{
    uint64_t checkpoint;
    if (!tid_from_int(arg, &checkpoint)) {
        return NULL;
    }
    store_restart(STORE(self), checkpoint);
    Py_RETURN_NONE;
}

static PyObject *
Store_reserve(PyObject *self, PyObject *arg)
{
    Py_ssize_t size_bytes = PyLong_AsSsize_t(arg);
    if (size_bytes < 0) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_ValueError, "size_bytes must not be negative");
        }
        return NULL;
    }
    store_reserve(STORE(self), (size_t)size_bytes);
    Py_RETURN_NONE;
}

static PyObject *
Store_unsaved(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    const store *s = STORE(self);
    PyObject *oids = PyList_New(0);
    const uint64_t *end = s->table.slots + table_bytes(&s->table) / sizeof(uint64_t);
    for (const uint64_t *slot = s->table.slots; oids != NULL && slot < end; slot++) {
        const revision *r = *slot ? revision_at(&s->arena, slot_offset(*slot)) : NULL;
        if (r == NULL || r->closed || r->saved) {
            continue;
        }
        PyObject *oid = int_of(r->oid);
        if (oid == NULL || PyList_Append(oids, oid) < 0) {
            Py_CLEAR(oids);
        }
        Py_XDECREF(oid);
    }
    if (oids != NULL && PyList_Sort(oids) < 0) {
        Py_CLEAR(oids);
    }
    return oids;
}

static PyObject *
Store_peek(PyObject *self, PyObject *arg)
{
    uint64_t oid;
    if (!id_from_int(arg, &oid)) {
        return NULL;
    }
    const revision *r = store_open_revision(STORE(self), oid);
    if (r == NULL) {
        Py_RETURN_NONE;
    }
    /* Before anything that may collect garbage, which may call back. */
    long long tid = (long long)r->tid;
    int frequency = (int)store_frequency(STORE(self), r);
    PyObject *state = PyBytes_FromStringAndSize(revision_state(r),
                                                (Py_ssize_t)revision_state_bytes(r));
    return state == NULL ? NULL : Py_BuildValue("LiN", tid, frequency, state);
}

static PyObject *
Store_mark_saved(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    uint64_t oid, tid;
    if (!expect(count, 2, "mark_saved") || !id_from_int(args[0], &oid) ||
        !id_from_int(args[1], &tid)) {
        return NULL;
    }
    revision *r = store_open_revision(STORE(self), oid);
    if (r != NULL && r->tid == tid) {
        r->saved = 1;
    }
    Py_RETURN_NONE;
}

static PyObject *
Store_mark_unsaved(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    store_mark_unsaved(STORE(self));
    Py_RETURN_NONE;
}

static PyObject *
Store_stats(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    const store *s = STORE(self);
    const store_counters *c = &s->counters;
    return Py_BuildValue(
        "{sK sK sK sK sK sK sK sn sn sn sn sn sn sn sn}", "hits", c->hits, "file_hits",
        c->file_hits, "misses", c->misses, "sets", c->sets, "evictions", c->evictions,
        "rejections", c->rejections, "moved_bytes", c->moved_bytes, "entries",
        (Py_ssize_t)s->table.count, "state_bytes",
        (Py_ssize_t)s->state_bytes, "used_bytes", (Py_ssize_t)store_used_bytes(s), "hole_bytes",
        (Py_ssize_t)arena_holes(&s->arena) * (Py_ssize_t)GRANULE_BYTES, "limit_bytes",
        (Py_ssize_t)s->limit_bytes, "eden_entries", (Py_ssize_t)s->segments.list[EDEN].count,
        "probation_entries", (Py_ssize_t)s->segments.list[PROBATION].count, "protected_entries",
        (Py_ssize_t)s->segments.list[PROTECTED].count);
}

static PyObject *
Store_check(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    const char *wrong = store_check(STORE(self));
    if (wrong != NULL) {
        PyErr_SetString(PyExc_AssertionError, wrong);
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *
Store_get_checkpoint(PyObject *self, void *Py_UNUSED(closure))
{
    return int_of(STORE(self)->checkpoint);
}

static PyObject *
Store_get_history(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromLongLong(STORE(self)->history);
}

static PyObject *
Store_get_limit_bytes(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromSize_t(STORE(self)->limit_bytes);
}

#define FASTCALL(function) ((PyCFunction)(void (*)(void))(function))

static PyMethodDef Store_methods[] = {
    {"load_before", FASTCALL(Store_load_before), METH_FASTCALL, NULL},
    {"load_at", FASTCALL(Store_load_at), METH_FASTCALL, NULL},
    {"holds", FASTCALL(Store_holds), METH_FASTCALL, NULL},
    {"insert_own", FASTCALL(Store_insert_own), METH_FASTCALL, NULL},
    {"recall", FASTCALL(Store_recall), METH_FASTCALL, NULL},
    {"insert", FASTCALL(Store_insert), METH_FASTCALL, NULL},
    {"promote", FASTCALL(Store_promote), METH_FASTCALL, NULL},
    {"restore", FASTCALL(Store_restore), METH_FASTCALL, NULL},
    {"advance", FASTCALL(Store_advance), METH_FASTCALL, NULL},
    {"follow", FASTCALL(Store_follow), METH_FASTCALL, NULL},
    {"forget", Store_forget, METH_O, NULL},
    {"clear", Store_clear, METH_NOARGS, NULL},
    {"restart", Store_restart, METH_O, NULL},
    {"reserve", Store_reserve, METH_O, NULL},
    {"unsaved", Store_unsaved, METH_NOARGS, NULL},
    {"peek", Store_peek, METH_O, NULL},
    {"mark_saved", FASTCALL(Store_mark_saved), METH_FASTCALL, NULL},
    {"mark_unsaved", Store_mark_unsaved, METH_NOARGS, NULL},
    {"stats", Store_stats, METH_NOARGS, NULL},
    {"check", Store_check, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef Store_getset[] = {
    {"checkpoint", Store_get_checkpoint, NULL, NULL, NULL},
    {"history", Store_get_history, NULL, NULL, NULL},
    {"limit_bytes", Store_get_limit_bytes, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot Store_slots[] = {
    {Py_tp_doc, "The memory tier; see zodbcache.interfaces.IStore."},
    {Py_tp_new, Store_new},
    {Py_tp_dealloc, Store_dealloc},
    {Py_tp_methods, Store_methods},
    {Py_tp_getset, Store_getset},
    {0, NULL},
};

static PyType_Spec Store_spec = {
    .name = "zodbcache._core._store.Store",
    .basicsize = sizeof(Store),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .slots = Store_slots,
};

/* ---- Reader, PinnedReader ---------------------------------------------- */

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *store;
    PyObject *miss; /* called with the same arguments, whatever they are */
    long long at;   /* PinnedReader: the read point; negative when there is none */
    long long history; /* and the store's history when it was known */
} Reader;

static inline bool
is_pinned(const Reader *self)
{
    return self->at >= 0 && self->history == STORE(self->store)->history;
}

static bool
is_id(PyObject *object)
{
    return PyBytes_Check(object) && PyBytes_GET_SIZE(object) == sizeof(uint64_t);
}

static PyObject *
Reader_vectorcall(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *names)
{
    Reader *self = (Reader *)callable;
    if (names == NULL && PyVectorcall_NARGS(nargsf) == 2 && is_id(args[0]) && is_id(args[1])) {
        const revision *r = store_load_before(STORE(self->store),
                                              big_endian(PyBytes_AS_STRING(args[0])),
                                              big_endian(PyBytes_AS_STRING(args[1])));
        if (r != NULL) {
            return answer(self->store, r);
        }
    }
    return PyObject_Vectorcall(self->miss, args, nargsf, names);
}

static PyObject *
PinnedReader_vectorcall(PyObject *callable, PyObject *const *args, size_t nargsf,
                        PyObject *names)
{
    Reader *self = (Reader *)callable;
    if (names == NULL && PyVectorcall_NARGS(nargsf) >= 1 && is_id(args[0]) && is_pinned(self)) {
        const revision *r = store_load_at(STORE(self->store),
                                          big_endian(PyBytes_AS_STRING(args[0])),
                                          (uint64_t)self->at);
        if (r != NULL) {
            return short_answer(self->store, r);
        }
    }
    return PyObject_Vectorcall(self->miss, args, nargsf, names);
}

static PyObject *
make_reader(PyTypeObject *type, PyObject *args, PyObject *kwargs, vectorcallfunc vectorcall)
{
    static char *names[] = {"store", "miss", NULL};
    PyObject *store, *miss;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO:Reader", names, &store, &miss)) {
        return NULL;
    }
    PyTypeObject *base = Py_TYPE(store);
    while (base != NULL && base->tp_dealloc != Store_dealloc) {
        base = base->tp_base;
    }
    if (base == NULL) {
        PyErr_Format(PyExc_TypeError, "store is a Store, not %.100s", Py_TYPE(store)->tp_name);
        return NULL;
    }
    Reader *self = (Reader *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->vectorcall = vectorcall;
        self->store = Py_NewRef(store);
        self->miss = Py_NewRef(miss);
        self->at = -1;
    }
    return (PyObject *)self;
}

static PyObject *
Reader_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    return make_reader(type, args, kwargs, Reader_vectorcall);
}

static PyObject *
PinnedReader_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    return make_reader(type, args, kwargs, PinnedReader_vectorcall);
}

static int
Reader_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((Reader *)self)->store);
    Py_VISIT(((Reader *)self)->miss);
    return 0;
}

static int
Reader_clear(PyObject *self)
{
    Py_CLEAR(((Reader *)self)->miss);
    return 0;
}

static void
Reader_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    Py_XDECREF(((Reader *)self)->store);
    Py_XDECREF(((Reader *)self)->miss);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMemberDef Reader_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Reader, vectorcall), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot Reader_slots[] = {
    {Py_tp_doc, "A hit from the store, else what the miss returns; see _store.pyi."},
    {Py_tp_new, Reader_new},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_traverse, Reader_traverse},
    {Py_tp_clear, Reader_clear},
    {Py_tp_dealloc, Reader_dealloc},
    {Py_tp_members, Reader_members},
    {0, NULL},
};

static PyType_Spec Reader_spec = {
    .name = "zodbcache._core._store.Reader",
    .basicsize = sizeof(Reader),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .slots = Reader_slots,
};

static PyObject *
PinnedReader_pin(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    uint64_t at, history;
    if (!expect(count, 2, "pin") || !tid_from_int(args[0], &at) ||
        !id_from_int(args[1], &history)) {
        return NULL;
    }
    ((Reader *)self)->at = (long long)at;
    ((Reader *)self)->history = (long long)history;
    Py_RETURN_NONE;
}

static PyObject *
PinnedReader_unpin(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    ((Reader *)self)->at = -1;
    Py_RETURN_NONE;
}

static PyObject *
PinnedReader_get_at(PyObject *self, void *Py_UNUSED(closure))
{
    const Reader *reader = (const Reader *)self;
    return PyLong_FromLongLong(is_pinned(reader) ? reader->at : -1);
}

static PyMethodDef PinnedReader_methods[] = {
    {"pin", FASTCALL(PinnedReader_pin), METH_FASTCALL, NULL},
    {"unpin", PinnedReader_unpin, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef PinnedReader_getset[] = {
    {"at", PinnedReader_get_at, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot PinnedReader_slots[] = {
    {Py_tp_doc, "Reads at one tid; else what the miss returns; see _store.pyi."},
    {Py_tp_new, PinnedReader_new},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_traverse, Reader_traverse},
    {Py_tp_clear, Reader_clear},
    {Py_tp_dealloc, Reader_dealloc},
    {Py_tp_members, Reader_members},
    {Py_tp_methods, PinnedReader_methods},
    {Py_tp_getset, PinnedReader_getset},
    {0, NULL},
};

static PyType_Spec PinnedReader_spec = {
    .name = "zodbcache._core._store.PinnedReader",
    .basicsize = sizeof(Reader),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .slots = PinnedReader_slots,
};

/* ---- Deltas ------------------------------------------------------------ */

typedef struct {
    PyObject_HEAD
    deltas deltas;
} Deltas;

#define DELTAS(self) (&((Deltas *)(self))->deltas)

static PyObject *
Deltas_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, ":Deltas", names)) {
        return NULL;
    }
    PyObject *self = type->tp_alloc(type, 0);
    if (self != NULL) {
        deltas_open(DELTAS(self));
    }
    return self;
}

static void
Deltas_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    deltas_close(DELTAS(self));
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *
Deltas_name(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    uint64_t tid, oid;
    if (!expect(count, 2, "name") || !id_from_int(args[1], &tid)) {
        return NULL;
    }
    PyObject *oids = PySequence_Fast(args[0], "oids are a list");
    if (oids == NULL) {
        return NULL;
    }
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(oids); i++) {
        if (!id_from_bytes(PySequence_Fast_GET_ITEM(oids, i), &oid)) {
            Py_DECREF(oids);
            return NULL;
        }
        if (!deltas_name(DELTAS(self), oid, tid)) {
            Py_DECREF(oids);
            return PyErr_NoMemory();
        }
    }
    Py_DECREF(oids);
    Py_RETURN_NONE;
}

static PyObject *
Deltas_update(PyObject *self, PyObject *arg)
{
    uint64_t oid, tid;
    PyObject *names = PySequence_Fast(arg, "names are a list");
    if (names == NULL) {
        return NULL;
    }
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(names); i++) {
        if (!name_from(PySequence_Fast_GET_ITEM(names, i), &oid, &tid)) {
            Py_DECREF(names);
            return NULL;
        }
        if (!deltas_name(DELTAS(self), oid, tid)) {
            Py_DECREF(names);
            return PyErr_NoMemory();
        }
    }
    Py_DECREF(names);
    Py_RETURN_NONE;
}

static PyObject *
Deltas_get(PyObject *self, PyObject *arg)
{
    uint64_t oid;
    return id_from_int(arg, &oid) ? int_of(deltas_get(DELTAS(self), oid)) : NULL;
}

static PyObject *
Deltas_since(PyObject *self, PyObject *arg)
{
    uint64_t tid;
    const deltas *d = DELTAS(self);
    if (!id_from_int(arg, &tid)) {
        return NULL;
    }
    /* A copy first: making tuples may collect garbage, which may call back. */
    delta *named = PyMem_Malloc((d->count + 1) * sizeof *named);
    if (named == NULL) {
        return PyErr_NoMemory();
    }
    size_t count = 0;
    for (size_t i = 0; i < d->capacity; i++) {
        if (d->slots[i].tid > tid) {
            named[count++] = d->slots[i];
        }
    }
    PyObject *result = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; result != NULL && i < count; i++) {
        PyObject *pair = Py_BuildValue("LL", (long long)named[i].oid, (long long)named[i].tid);
        if (pair == NULL) {
            Py_CLEAR(result);
        }
        else {
            PyList_SET_ITEM(result, (Py_ssize_t)i, pair);
        }
    }
    PyMem_Free(named);
    return result;
}

static PyObject *
Deltas_trim(PyObject *self, PyObject *arg)
{
    uint64_t tid;
    if (!id_from_int(arg, &tid)) {
        return NULL;
    }
    if (!deltas_trim(DELTAS(self), tid)) {
        return PyErr_NoMemory();
    }
    Py_RETURN_NONE;
}

static Py_ssize_t
Deltas_length(PyObject *self)
{
    return (Py_ssize_t)DELTAS(self)->count;
}

static PyObject *
Deltas_get_size_bytes(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromSize_t(deltas_bytes(DELTAS(self)));
}

static PyMethodDef Deltas_methods[] = {
    {"name", FASTCALL(Deltas_name), METH_FASTCALL, NULL},
    {"update", Deltas_update, METH_O, NULL},
    {"get", Deltas_get, METH_O, NULL},
    {"since", Deltas_since, METH_O, NULL},
    {"trim", Deltas_trim, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef Deltas_getset[] = {
    {"size_bytes", Deltas_get_size_bytes, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot Deltas_slots[] = {
    {Py_tp_doc, "{oid: tid} of what changed; see _store.pyi."},
    {Py_tp_new, Deltas_new},
    {Py_tp_dealloc, Deltas_dealloc},
    {Py_tp_methods, Deltas_methods},
    {Py_tp_getset, Deltas_getset},
    {Py_mp_length, Deltas_length},
    {0, NULL},
};

static PyType_Spec Deltas_spec = {
    .name = "zodbcache._core._store.Deltas",
    .basicsize = sizeof(Deltas),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = Deltas_slots,
};

/* ---- the module -------------------------------------------------------- */

static int
add_type(PyObject *module, PyType_Spec *spec)
{
    PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);
    int failed = type == NULL ? -1 : PyModule_AddType(module, (PyTypeObject *)type);
    Py_XDECREF(type);
    return failed;
}

static int
module_exec(PyObject *module)
{
    bool good = add_type(module, &Store_spec) == 0 && add_type(module, &Reader_spec) == 0 &&
                add_type(module, &PinnedReader_spec) == 0 &&
                add_type(module, &Deltas_spec) == 0;
    return good ? 0 : -1;
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, module_exec},
#if PY_VERSION_HEX >= 0x030c0000
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_SUPPORTED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "zodbcache._core._store",
    .m_doc = "The C core: the memory tier and the invalidation log's deltas.",
    .m_slots = module_slots,
};

PyMODINIT_FUNC
PyInit__store(void)
{
    return PyModuleDef_Init(&definition);
}
