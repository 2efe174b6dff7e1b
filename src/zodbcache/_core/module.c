/* The C core as Python sees it: types, no logic.
 *
 * Every method runs under the GIL from beginning to end, and is atomic by that;
 * but for those of Rows, which let others run while SQLite works.
 * Ids are int64 in Python and uint64 here, the same 64 bits; where a method
 * takes 8 bytes, they are big-endian.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>
#include <stddef.h>
#include <time.h>

#include "batch.h"
#include "crc32.h"
#include "deltas.h"
#include "oid.h"
#include "pagesum.h"
#include "rows.h"
#include "store.h"
#include "tempstore.h"
#include "tier.h"

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

/* A list of names as an array that the caller frees; NULL with an error set. */
static name *
names_from(PyObject *object, size_t *count)
{
    PyObject *pairs = PySequence_Fast(object, "names are a list");
    if (pairs == NULL) {
        return NULL;
    }
    *count = (size_t)PySequence_Fast_GET_SIZE(pairs);
    name *names = PyMem_RawMalloc((*count + 1) * sizeof *names);
    bool good = names != NULL;
    if (!good) {
        PyErr_NoMemory();
    }
    for (size_t i = 0; good && i < *count; i++) {
        good = name_from(PySequence_Fast_GET_ITEM(pairs, (Py_ssize_t)i), &names[i].oid,
                         &names[i].tid);
    }
    Py_DECREF(pairs);
    if (!good) {
        PyMem_RawFree(names);
        return NULL;
    }
    return names;
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

/* A read that takes longer waits for a disk; the next ones let others run. */
enum { SLOW_NANOSECONDS = 1000000, READS_AFTER_SLOW = 100 };

static int64_t
nanoseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static const sqlite_api *sqlite; /* of APSW's SQLite, once it has loaded us */

/* Otherwise RuntimeError. */
static bool
has_sqlite(void)
{
    if (sqlite == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "load this module into SQLite as an extension first");
    }
    return sqlite != NULL;
}

/* ---- the module's types ------------------------------------------------ */

typedef struct {
    PyTypeObject *batch, *deltas;
    PyObject *sqlite_error;
} module_types;

/* Of the module whose type the object is of, or of a class derived from it. */
static module_types *
types_of(PyObject *object)
{
    void *types = NULL;
    for (PyTypeObject *type = Py_TYPE(object); types == NULL && type != NULL;
         type = type->tp_base) {
        PyErr_Clear(); /* a class made in Python has no module state */
        types = PyType_GetModuleState(type);
    }
    return types;
}

/* ---- Batch ------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    batch batch;
} Batch;

#define BATCH(self) (&((Batch *)(self))->batch)

/* An empty one.  *relative*: any object of the module. */
static Batch *
make_batch(PyObject *relative)
{
    module_types *types = types_of(relative);
    return types == NULL ? NULL : (Batch *)types->batch->tp_alloc(types->batch, 0);
}

static const batch *
batch_from(PyObject *relative, PyObject *object)
{
    module_types *types = types_of(relative);
    if (types != NULL && !PyObject_TypeCheck(object, types->batch)) {
        PyErr_Format(PyExc_TypeError, "not a Batch: %.100s", Py_TYPE(object)->tp_name);
        types = NULL;
    }
    return types == NULL ? NULL : BATCH(object);
}

static bool
add_row(batch *b, PyObject *row)
{
    long long oid, tid, frequency;
    PyObject *state;
    if (!PyTuple_Check(row)) {
        PyErr_SetString(PyExc_TypeError, "a row is (oid, tid, frequency, state)");
        return false;
    }
    if (!PyArg_ParseTuple(row, "LLLS;a row is (oid, tid, frequency, state)", &oid, &tid,
                          &frequency, &state)) {
        return false;
    }
    if (!batch_add(b, (uint64_t)oid, (uint64_t)tid, frequency, PyBytes_AS_STRING(state),
                   (size_t)PyBytes_GET_SIZE(state))) {
        PyErr_NoMemory();
        return false;
    }
    return true;
}

static PyObject *
Batch_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"rows", NULL};
    PyObject *given;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O:Batch", names, &given)) {
        return NULL;
    }
    PyObject *rows = PySequence_Fast(given, "rows are a list");
    PyObject *self = rows == NULL ? NULL : type->tp_alloc(type, 0);
    for (Py_ssize_t i = 0; self != NULL && i < PySequence_Fast_GET_SIZE(rows); i++) {
        if (!add_row(BATCH(self), PySequence_Fast_GET_ITEM(rows, i))) {
            Py_CLEAR(self);
        }
    }
    Py_XDECREF(rows);
    return self;
}

static void
Batch_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    batch_close(BATCH(self));
    type->tp_free(self);
    Py_DECREF(type);
}

/* [(oid, tid, frequency, state), ...] */
static PyObject *
row_list(const batch *b)
{
    PyObject *list = PyList_New((Py_ssize_t)b->count);
    for (size_t i = 0; list != NULL && i < b->count; i++) {
        const batch_row *row = &b->rows[i];
        PyObject *tuple = Py_BuildValue("LLLy#", (long long)row->oid, (long long)row->tid,
                                        (long long)row->frequency, batch_state(b, row),
                                        (Py_ssize_t)row->state_bytes);
        if (tuple == NULL) {
            Py_CLEAR(list);
        }
        else {
            PyList_SET_ITEM(list, (Py_ssize_t)i, tuple);
        }
    }
    return list;
}

static PyObject *
Batch_rows(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    return row_list(BATCH(self));
}

static Py_ssize_t
Batch_length(PyObject *self)
{
    return (Py_ssize_t)BATCH(self)->count;
}

static PyObject *
Batch_get_state_bytes(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromSize_t(BATCH(self)->states_bytes);
}

static PyMethodDef Batch_methods[] = {
    {"rows", Batch_rows, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef Batch_getset[] = {
    {"state_bytes", Batch_get_state_bytes, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot Batch_slots[] = {
    {Py_tp_doc, "Rows on their way between memory and the file; see _store.pyi."},
    {Py_tp_new, Batch_new},
    {Py_tp_dealloc, Batch_dealloc},
    {Py_tp_methods, Batch_methods},
    {Py_tp_getset, Batch_getset},
    {Py_mp_length, Batch_length},
    {0, NULL},
};

static PyType_Spec Batch_spec = {
    .name = "zodbcache._core._store.Batch",
    .basicsize = sizeof(Batch),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = Batch_slots,
};

/* ---- Deltas, as the store needs them ----------------------------------- */

typedef struct {
    PyObject_HEAD
    deltas deltas;
} Deltas;

#define DELTAS(self) (&((Deltas *)(self))->deltas)

static const deltas *
deltas_from(PyObject *relative, PyObject *object)
{
    module_types *types = types_of(relative);
    if (types != NULL && !PyObject_TypeCheck(object, types->deltas)) {
        PyErr_Format(PyExc_TypeError, "not Deltas: %.100s", Py_TYPE(object)->tp_name);
        types = NULL;
    }
    return types == NULL ? NULL : DELTAS(object);
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
    tier *tier;
    PyThread_type_lock lock; /* NULL: the GIL is lock enough */
    unsigned slow;           /* so many loads are to let others run */
    shared_tid shared_tids[SHARED_TIDS];
} Store;

/* What the object says of itself, which no lock protects. */
#define TIER(self) (((Store *)(self))->tier)

/* From here to leave() nothing may run Python code, nor collect garbage. */
static tier *
enter(PyObject *self)
{
    Store *s = (Store *)self;
    if (s->lock != NULL && !PyThread_acquire_lock(s->lock, NOWAIT_LOCK)) {
        Py_BEGIN_ALLOW_THREADS
        PyThread_acquire_lock(s->lock, WAIT_LOCK);
        Py_END_ALLOW_THREADS
    }
    return s->tier;
}

static void
leave(PyObject *self)
{
    if (((Store *)self)->lock != NULL) {
        PyErr_Clear(); /* a VFS in Python may have left one; the tier has dealt with it */
        PyThread_release_lock(((Store *)self)->lock);
    }
}

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

/* The sizes from the arguments; ValueError unless they are possible. */
static bool
sizes_from(PyObject *args, PyObject *kwargs, size_t limit_max_bytes, size_t *limit_bytes,
           size_t *object_max_bytes)
{
    static char *names[] = {"limit_bytes", "object_max_bytes", NULL};
    Py_ssize_t limit, object_max;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "nn:Store", names, &limit, &object_max)) {
        return false;
    }
    if (limit < (Py_ssize_t)STORE_LIMIT_MIN_BYTES || (size_t)limit > limit_max_bytes ||
        object_max < 1) {
        PyErr_Format(PyExc_ValueError,
                     "limit_bytes must be between %zu and %zu, object_max_bytes positive",
                     STORE_LIMIT_MIN_BYTES, limit_max_bytes);
        return false;
    }
    *limit_bytes = (size_t)limit;
    *object_max_bytes = (size_t)object_max;
    return true;
}

static PyObject *
Store_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    size_t limit_bytes, object_max_bytes;
    if (!sizes_from(args, kwargs, STORE_LIMIT_MAX_BYTES, &limit_bytes, &object_max_bytes)) {
        return NULL;
    }
    Store *self = (Store *)type->tp_alloc(type, 0);
    if (self != NULL && (self->tier = store_make(limit_bytes, object_max_bytes)) == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    return (PyObject *)self;
}

static void
Store_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    Store *s = (Store *)self;
    if (s->tier != NULL) {
        s->tier->kind->close(s->tier);
    }
    if (s->lock != NULL) {
        PyThread_free_lock(s->lock);
    }
    for (int i = 0; i < SHARED_TIDS; i++) {
        Py_XDECREF(s->shared_tids[i].bytes);
    }
    type->tp_free(self);
    Py_DECREF(type);
}

typedef bool (*lookup)(tier *t, uint64_t oid, uint64_t tid, held *found);

/* look_up() where others may be at work, and a disk may have to be waited for.  By
 * then the store may have another history than the one that was asked about. */
static int
look_up_patiently(PyObject *self, lookup look, uint64_t oid, uint64_t tid, held *found,
                  PyObject **state)
{
    Store *s = (Store *)self;
    long long history = TIER(self)->history;
    tier *t = enter(self);
    if (t->history != history) {
        leave(self);
        return 0;
    }
    int64_t begun = nanoseconds();
    bool is_found;
    if (s->slow) {
        Py_BEGIN_ALLOW_THREADS
        is_found = look(t, oid, tid, found);
        Py_END_ALLOW_THREADS
        s->slow--;
    }
    else {
        is_found = look(t, oid, tid, found);
        if (nanoseconds() - begun > SLOW_NANOSECONDS) {
            s->slow = READS_AFTER_SLOW;
        }
    }
    if (is_found) {
        *state = PyBytes_FromStringAndSize(found->state, (Py_ssize_t)found->state_bytes);
        t->kind->release(t);
    }
    leave(self);
    return is_found;
}

/* The look-up, and its state as bytes: 1 and *state, or NULL without memory; 0 if
 * nothing was found. */
static inline int
look_up(PyObject *self, lookup look, uint64_t oid, uint64_t tid, held *found, PyObject **state)
{
    tier *t = TIER(self);
    if (((Store *)self)->lock == NULL) {
        if (!look(t, oid, tid, found)) {
            return 0;
        }
        *state = PyBytes_FromStringAndSize(found->state, (Py_ssize_t)found->state_bytes);
        return 1;
    }
    return look_up_patiently(self, look, oid, tid, found, state);
}

/* (state, tid), or (state, tid, end); takes the reference to the state. */
static PyObject *
answer(PyObject *self, PyObject *state, const held *found, bool with_end)
{
    PyObject *result = state == NULL ? NULL : PyTuple_New(with_end ? 3 : 2);
    if (result == NULL) {
        Py_XDECREF(state);
        return NULL;
    }
    PyTuple_SET_ITEM(result, 0, state);
    PyTuple_SET_ITEM(result, 1, tid_bytes(self, found->tid));
    if (with_end) {
        PyTuple_SET_ITEM(result, 2, found->end ? bytes_of(found->end) : Py_NewRef(Py_None));
    }
    for (Py_ssize_t i = 1; i < PyTuple_GET_SIZE(result); i++) {
        if (PyTuple_GET_ITEM(result, i) == NULL) {
            Py_DECREF(result);
            return NULL;
        }
    }
    return result;
}

static PyObject *
Store_load_before(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    uint64_t oid, before;
    held found;
    PyObject *state;
    if (!expect(count, 2, "load_before") || !id_from_bytes(args[0], &oid) ||
        !id_from_bytes(args[1], &before)) {
        return NULL;
    }
    return look_up(self, TIER(self)->kind->load_before, oid, before, &found, &state)
               ? answer(self, state, &found, true)
               : Py_NewRef(Py_None);
}

static PyObject *
Store_load_at(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    uint64_t oid, at;
    held found;
    PyObject *state;
    if (!expect(count, 2, "load_at") || !id_from_bytes(args[0], &oid) ||
        !tid_from_int(args[1], &at)) {
        return NULL;
    }
    return look_up(self, TIER(self)->kind->load_at, oid, at, &found, &state)
               ? answer(self, state, &found, false)
               : Py_NewRef(Py_None);
}

static PyObject *
Store_holds(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    uint64_t oid, at;
    if (!expect(count, 2, "holds") || !id_from_bytes(args[0], &oid) ||
        !tid_from_int(args[1], &at)) {
        return NULL;
    }
    tier *t = enter(self);
    bool holds = t->kind->holds(t, oid, at);
    leave(self);
    return PyBool_FromLong(holds);
}

static PyObject *
Store_recall(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    uint64_t oid, tid;
    held found;
    PyObject *state;
    if (!expect(count, 2, "recall") || !id_from_bytes(args[0], &oid) ||
        !id_from_bytes(args[1], &tid)) {
        return NULL;
    }
    return look_up(self, TIER(self)->kind->recall, oid, tid, &found, &state) ? state
                                                                            : Py_NewRef(Py_None);
}

static bool
peek(tier *t, uint64_t oid, uint64_t Py_UNUSED(tid), held *found)
{
    return t->kind->peek(t, oid, found);
}

static PyObject *
Store_peek(PyObject *self, PyObject *arg)
{
    uint64_t oid;
    held found;
    PyObject *state;
    if (!id_from_int(arg, &oid)) {
        return NULL;
    }
    if (!look_up(self, peek, oid, 0, &found, &state)) {
        Py_RETURN_NONE;
    }
    return state == NULL ? NULL
                         : Py_BuildValue("LiN", (long long)found.tid, (int)found.frequency, state);
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
    tier *t = enter(self);
    bool is_held = t->kind->insert(t, oid, tid, end, state, state_bytes);
    leave(self);
    return PyBool_FromLong(is_held);
}

/* What restore() and promote() take. */
static bool
row_from(PyObject *const *args, uint64_t *oid, uint64_t *tid, const char **state,
         size_t *state_bytes, unsigned *frequency)
{
    return id_from_int(args[0], oid) && id_from_int(args[1], tid) &&
           state_from(args[2], state, state_bytes) && frequency_from(args[3], frequency);
}

static PyObject *
Store_restore(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    uint64_t oid, tid;
    unsigned frequency;
    const char *state;
    size_t state_bytes;
    if (!expect(count, 4, "restore") ||
        !row_from(args, &oid, &tid, &state, &state_bytes, &frequency)) {
        return NULL;
    }
    tier *t = enter(self);
    bool has_room = t->kind->restore(t, oid, tid, state, state_bytes, frequency);
    leave(self);
    return PyBool_FromLong(has_room);
}

static PyObject *
Store_promote(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    uint64_t oid, tid;
    unsigned frequency;
    const char *state;
    size_t state_bytes;
    if (!expect(count, 4, "promote") ||
        !row_from(args, &oid, &tid, &state, &state_bytes, &frequency)) {
        return NULL;
    }
    tier *t = enter(self);
    bool is_held = t->kind->promote(t, oid, tid, state, state_bytes, frequency);
    leave(self);
    return PyBool_FromLong(is_held);
}

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
    PyObject *key = NULL, *value = NULL;
    Py_ssize_t position = 0;
    bool good = true;
    tier *t = enter(self);
    while (good && PyDict_Next(args[0], &position, &key, &value)) {
        good = PyBytes_Check(key) && PyBytes_GET_SIZE(key) == sizeof oid &&
               (value == Py_None || PyBytes_Check(value));
        if (!good) {
            break;
        }
        oid = big_endian(PyBytes_AS_STRING(key));
        t->kind->end(t, oid, tid, ENDED_LATER);
        if (value != Py_None) {
            t->kind->insert(t, oid, tid, 0, PyBytes_AS_STRING(value),
                            (size_t)PyBytes_GET_SIZE(value));
        }
    }
    leave(self);
    if (!good) { /* one of the two says what is wrong */
        const char *state;
        size_t state_bytes;
        return id_from_bytes(key, &oid) && state_from(value, &state, &state_bytes)
                   ? Py_NewRef(Py_None)
                   : NULL;
    }
    Py_RETURN_NONE;
}

/* What became of one object, for advance(). */
typedef struct {
    uint64_t oid, tid;
    enum ending ending;
} ending_of;

typedef struct {
    ending_of *items;
    size_t count, capacity;
} endings;

static bool
add_ending(endings *all, uint64_t oid, uint64_t tid, enum ending ending)
{
    if (all->count == all->capacity) {
        size_t capacity = all->capacity ? 2 * all->capacity : 64;
        ending_of *items = PyMem_Realloc(all->items, capacity * sizeof *items);
        if (items == NULL) {
            PyErr_NoMemory();
            return false;
        }
        all->items = items;
        all->capacity = capacity;
    }
    all->items[all->count++] = (ending_of){oid, tid, ending};
    return true;
}

static bool
add_endings(endings *all, PyObject *oids, uint64_t tid, enum ending ending)
{
    PyObject *sequence = PySequence_Fast(oids, "the oids of a change are a list");
    if (sequence == NULL) {
        return false;
    }
    bool good = true;
    for (Py_ssize_t i = 0; good && i < PySequence_Fast_GET_SIZE(sequence); i++) {
        uint64_t oid;
        good = id_from_bytes(PySequence_Fast_GET_ITEM(sequence, i), &oid) &&
               add_ending(all, oid, tid, ending);
    }
    Py_DECREF(sequence);
    return good;
}

static bool
add_change(endings *all, PyObject *change)
{
    PyObject *oids, *exact;
    long long tid;
    if (!PyTuple_Check(change)) {
        PyErr_SetString(PyExc_TypeError, "a change is (oids, tid, exact)");
        return false;
    }
    return PyArg_ParseTuple(change, "OLO!;a change is (oids, tid, exact)", &oids, &tid,
                            &PyBool_Type, &exact) &&
           add_endings(all, oids, (uint64_t)tid,
                       exact == Py_True ? ENDED_EXACTLY : ENDED_UNKNOWN);
}

static PyObject *
Store_advance(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    uint64_t checkpoint;
    if (!expect(count, 2, "advance") || !tid_from_int(args[1], &checkpoint)) {
        return NULL;
    }
    PyObject *changes = PySequence_Fast(args[0], "changes are a list");
    endings all = {0};
    bool good = changes != NULL;
    for (Py_ssize_t i = 0; good && i < PySequence_Fast_GET_SIZE(changes); i++) {
        good = add_change(&all, PySequence_Fast_GET_ITEM(changes, i));
    }
    Py_XDECREF(changes);
    if (good) {
        tier *t = enter(self);
        for (size_t i = 0; i < all.count; i++) {
            t->kind->end(t, all.items[i].oid, all.items[i].tid, all.items[i].ending);
        }
        tier_raise_checkpoint(t, checkpoint); /* I1: only now */
        leave(self);
    }
    PyMem_Free(all.items);
    return good ? Py_NewRef(Py_None) : NULL;
}

static PyObject *
Store_follow(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    uint64_t checkpoint;
    size_t named;
    if (!expect(count, 2, "follow") || !tid_from_int(args[1], &checkpoint)) {
        return NULL;
    }
    name *names = names_from(args[0], &named);
    if (names == NULL) {
        return NULL;
    }
    tier *t = enter(self);
    for (size_t i = 0; i < named; i++) {
        t->kind->end(t, names[i].oid, names[i].tid, ENDED_LATER);
    }
    tier_raise_checkpoint(t, checkpoint); /* I1: only now */
    leave(self);
    PyMem_RawFree(names);
    Py_RETURN_NONE;
}

static PyObject *
Store_forget(PyObject *self, PyObject *arg)
{
    uint64_t oid;
    if (!id_from_int(arg, &oid)) {
        return NULL;
    }
    tier *t = enter(self);
    t->kind->forget(t, oid);
    leave(self);
    Py_RETURN_NONE;
}

static PyObject *
Store_clear(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    tier *t = enter(self);
    t->kind->clear(t);
    leave(self);
    Py_RETURN_NONE;
}

static PyObject *
Store_restart(PyObject *self, PyObject *arg)
{
    uint64_t checkpoint;
    if (!tid_from_int(arg, &checkpoint)) {
        return NULL;
    }
    tier *t = enter(self);
    tier_restart(t, checkpoint);
    leave(self);
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
    tier *t = enter(self);
    t->kind->reserve(t, (size_t)size_bytes);
    leave(self);
    Py_RETURN_NONE;
}

static int
compare_ids(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

/* Sorted as the file is, each oid once; so many are left. */
static size_t
sort_ids(uint64_t *ids, size_t count)
{
    qsort(ids, count, sizeof *ids, compare_ids);
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        if (!kept || ids[kept - 1] != ids[i]) {
            ids[kept++] = ids[i];
        }
    }
    return kept;
}

static PyObject *
Store_take_unsaved(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    size_t count;
    uint64_t *oids;
    tier *t = enter(self);
    t->kind->take_unsaved(t, &oids, &count);
    leave(self);
    if (oids == NULL) {
        return PyErr_NoMemory();
    }
    Py_BEGIN_ALLOW_THREADS
    count = sort_ids(oids, count);
    Py_END_ALLOW_THREADS
    PyObject *result = PyBytes_FromStringAndSize((const char *)oids,
                                                 (Py_ssize_t)(count * sizeof *oids));
    free(oids);
    return result;
}

static PyObject *
Store_return_unsaved(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    const char *oids;
    size_t oids_bytes;
    uint64_t start;
    if (!expect(count, 2, "return_unsaved") || !state_from(args[0], &oids, &oids_bytes) ||
        !tid_from_int(args[1], &start)) {
        return NULL;
    }
    size_t end = oids_bytes / sizeof(uint64_t);
    start = start < end ? start : end;
    tier *t = enter(self);
    t->kind->return_unsaved(t, (const uint64_t *)oids + start, end - start);
    leave(self);
    Py_RETURN_NONE;
}

static PyObject *
Store_search_unsaved(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    tier *t = enter(self);
    t->kind->search_unsaved(t);
    leave(self);
    Py_RETURN_NONE;
}

static PyObject *
Store_pack(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    const char *oids;
    size_t oids_bytes;
    uint64_t start, through, bytes_max;
    if (!expect(count, 4, "pack") || !state_from(args[0], &oids, &oids_bytes) ||
        !tid_from_int(args[1], &start) || !tid_from_int(args[2], &through) ||
        !tid_from_int(args[3], &bytes_max)) {
        return NULL;
    }
    size_t end = oids_bytes / sizeof(uint64_t);
    start = start < end ? start : end;
    Batch *packed = make_batch(self);
    if (packed == NULL) {
        return NULL;
    }
    tier *t = enter(self);
    size_t done = t->kind->pack(t, (const uint64_t *)oids + start, end - start, through, bytes_max,
                                &packed->batch);
    leave(self);
    return Py_BuildValue("Nn", packed, (Py_ssize_t)(start + done));
}

static PyObject *
Store_mark_unsaved(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    tier *t = enter(self);
    t->kind->mark_unsaved(t);
    leave(self);
    Py_RETURN_NONE;
}

static PyObject *
Store_restore_batch(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    uint64_t known;
    const batch *given;
    if (!expect(count, 3, "restore_batch") || (given = batch_from(self, args[0])) == NULL ||
        !tid_from_int(args[2], &known)) {
        return NULL;
    }
    const deltas *changed = deltas_from(self, args[1]);
    if (changed == NULL) {
        return NULL;
    }
    tier *t = enter(self);
    bool has_room = tier_restore_batch(t, given, changed, known);
    leave(self);
    return PyBool_FromLong(has_room);
}

static PyObject *
Store_heated(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    uint64_t from, slots, faded;
    if (!expect(count, 3, "heated") || !tid_from_int(args[0], &from) ||
        !tid_from_int(args[1], &slots) || !tid_from_int(args[2], &faded)) {
        return NULL;
    }
    size_t all_slots = TIER(self)->kind->slots(TIER(self));
    slots = slots < all_slots ? slots : all_slots;
    revision_gain *gains = PyMem_Malloc((slots + 1) * sizeof *gains);
    if (gains == NULL) {
        return PyErr_NoMemory();
    }
    size_t position = from;
    unsigned fading = faded < FREQUENCY_MAX ? (unsigned)faded : FREQUENCY_MAX;
    tier *t = enter(self);
    size_t heated = t->kind->heated(t, &position, slots, fading, gains);
    leave(self);
    PyObject *found = PyList_New((Py_ssize_t)heated);
    for (size_t i = 0; found != NULL && i < heated; i++) {
        PyObject *gain = Py_BuildValue("LLL", (long long)gains[i].oid, (long long)gains[i].tid,
                                       (long long)gains[i].gain);
        if (gain == NULL) {
            Py_CLEAR(found);
        }
        else {
            PyList_SET_ITEM(found, (Py_ssize_t)i, gain);
        }
    }
    PyMem_Free(gains);
    return found == NULL ? NULL : Py_BuildValue("Nn", found, (Py_ssize_t)position);
}

static PyObject *
Store_stats(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    tier_sizes sizes;
    tier *t = enter(self);
    tier_counters c = t->counters;
    t->kind->measure(t, &sizes);
    leave(self);
    return Py_BuildValue(
        "{sK sK sK sK sK sK sK sn sn sn sn sn sn sn sn}", "hits", c.hits, "file_hits",
        c.file_hits, "misses", c.misses, "sets", c.sets, "evictions", c.evictions, "rejections",
        c.rejections, "moved_bytes", c.moved_bytes, "entries", (Py_ssize_t)sizes.entries,
        "state_bytes", (Py_ssize_t)sizes.state_bytes, "used_bytes", (Py_ssize_t)sizes.used_bytes,
        "hole_bytes", (Py_ssize_t)sizes.hole_bytes, "limit_bytes", (Py_ssize_t)t->limit_bytes,
        "eden_entries", (Py_ssize_t)sizes.eden_entries, "probation_entries",
        (Py_ssize_t)sizes.probation_entries, "protected_entries",
        (Py_ssize_t)sizes.protected_entries);
}

static PyObject *
Store_check(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    tier *t = enter(self);
    const char *wrong = t->kind->check(t);
    leave(self);
    if (wrong != NULL) {
        PyErr_SetString(PyExc_AssertionError, wrong);
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *
Store_get_checkpoint(PyObject *self, void *Py_UNUSED(closure))
{
    return int_of(TIER(self)->checkpoint);
}

static PyObject *
Store_get_history(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromLongLong(TIER(self)->history);
}

static PyObject *
Store_get_unsaved_bytes(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromSize_t(TIER(self)->unsaved_bytes);
}

static PyObject *
Store_get_unsaved_left(PyObject *self, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(TIER(self)->unsaved_left);
}

static PyObject *
Store_get_limit_bytes(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromSize_t(TIER(self)->limit_bytes);
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
    {"peek", Store_peek, METH_O, NULL},
    {"take_unsaved", Store_take_unsaved, METH_NOARGS, NULL},
    {"return_unsaved", FASTCALL(Store_return_unsaved), METH_FASTCALL, NULL},
    {"search_unsaved", Store_search_unsaved, METH_NOARGS, NULL},
    {"pack", FASTCALL(Store_pack), METH_FASTCALL, NULL},
    {"mark_unsaved", Store_mark_unsaved, METH_NOARGS, NULL},
    {"restore_batch", FASTCALL(Store_restore_batch), METH_FASTCALL, NULL},
    {"heated", FASTCALL(Store_heated), METH_FASTCALL, NULL},
    {"stats", Store_stats, METH_NOARGS, NULL},
    {"check", Store_check, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef Store_getset[] = {
    {"checkpoint", Store_get_checkpoint, NULL, NULL, NULL},
    {"history", Store_get_history, NULL, NULL, NULL},
    {"limit_bytes", Store_get_limit_bytes, NULL, NULL, NULL},
    {"unsaved_bytes", Store_get_unsaved_bytes, NULL, NULL, NULL},
    {"unsaved_left", Store_get_unsaved_left, NULL, NULL, NULL},
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

/* ---- TempStore --------------------------------------------------------- */

#define TEMPSTORE(self) ((tempstore *)TIER(self))

static PyObject *
TempStore_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    size_t limit_bytes, object_max_bytes;
    if (!sizes_from(args, kwargs, TEMPSTORE_LIMIT_MAX_BYTES, &limit_bytes, &object_max_bytes) ||
        !has_sqlite()) {
        return NULL;
    }
    Store *self = (Store *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->lock = PyThread_allocate_lock();
    self->tier = tempstore_make(sqlite, limit_bytes, object_max_bytes);
    if (self->lock == NULL || self->tier == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    return (PyObject *)self;
}

/* In the child of a fork, where another thread may have held the lock. */
static PyObject *
TempStore_abandon(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    PyThread_type_lock lock = PyThread_allocate_lock();
    if (lock == NULL) {
        return PyErr_NoMemory();
    }
    ((Store *)self)->lock = lock; /* the old one is never freed */
    tempstore_abandon(TEMPSTORE(self));
    Py_RETURN_NONE;
}

static PyObject *
TempStore_get_faults(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLongLong(TEMPSTORE(self)->faults);
}

static PyObject *
TempStore_get_last_fault(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromLong(TEMPSTORE(self)->last_fault);
}

static PyMethodDef TempStore_methods[] = {
    {"abandon", TempStore_abandon, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef TempStore_getset[] = {
    {"faults", TempStore_get_faults, NULL, NULL, NULL},
    {"last_fault", TempStore_get_last_fault, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot TempStore_slots[] = {
    {Py_tp_doc, "A Store in a temporary SQLite database; see _store.pyi."},
    {Py_tp_new, TempStore_new},
    {Py_tp_dealloc, Store_dealloc},
    {Py_tp_methods, TempStore_methods},
    {Py_tp_getset, TempStore_getset},
    {0, NULL},
};

static PyType_Spec TempStore_spec = {
    .name = "zodbcache._core._store.TempStore",
    .basicsize = sizeof(Store),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .slots = TempStore_slots,
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
    return self->at >= 0 && self->history == TIER(self->store)->history;
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
        held found;
        PyObject *state;
        if (look_up(self->store, TIER(self->store)->kind->load_before,
                    big_endian(PyBytes_AS_STRING(args[0])), big_endian(PyBytes_AS_STRING(args[1])),
                    &found, &state)) {
            return answer(self->store, state, &found, true);
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
        held found;
        PyObject *state;
        if (look_up(self->store, TIER(self->store)->kind->load_at,
                    big_endian(PyBytes_AS_STRING(args[0])), (uint64_t)self->at, &found, &state)) {
            return answer(self->store, state, &found, false);
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
    size_t count;
    name *names = names_from(arg, &count);
    if (names == NULL) {
        return NULL;
    }
    bool good = true;
    for (size_t i = 0; good && i < count; i++) {
        good = deltas_name(DELTAS(self), names[i].oid, names[i].tid);
    }
    PyMem_RawFree(names);
    return good ? Py_NewRef(Py_None) : PyErr_NoMemory();
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

/* ---- Rows -------------------------------------------------------------- */

/* What SQLite calls when it loads this library as an extension. */
int
sqlite3_zodbcache_init(sqlite3 *Py_UNUSED(db), char **Py_UNUSED(message), const sqlite_api *api)
{
    sqlite = api;
    return pagesum_register(api);
}

typedef struct {
    PyObject_HEAD
    rows rows;
    PyObject *connection; /* APSW's; it must live as long as the statements */
    bool closed;
    unsigned slow; /* so many reads are to let others run */
} Rows;

static PyObject *
Rows_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"connection", NULL};
    PyObject *connection;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O:Rows", names, &connection)) {
        return NULL;
    }
    if (!has_sqlite()) {
        return NULL;
    }
    PyObject *pointer = PyObject_CallMethod(connection, "sqlite3_pointer", NULL);
    void *db = pointer == NULL ? NULL : PyLong_AsVoidPtr(pointer);
    Py_XDECREF(pointer);
    Rows *self = db == NULL ? NULL : (Rows *)type->tp_alloc(type, 0);
    if (self != NULL) {
        rows_open(&self->rows, sqlite, db);
        self->connection = Py_NewRef(connection);
    }
    return (PyObject *)self;
}

static PyObject *
Rows_close(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    Rows *r = (Rows *)self;
    if (!r->closed) {
        r->closed = true;
        rows_close(&r->rows);
        Py_CLEAR(r->connection);
    }
    Py_RETURN_NONE;
}

/* Whoever does not close it may be a fork's child: what is SQLite's stays. */
static void
Rows_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF(((Rows *)self)->connection);
    type->tp_free(self);
    Py_DECREF(type);
}

/* NULL with an error set when it is closed. */
static rows *
open_rows(PyObject *self)
{
    if (((Rows *)self)->closed) {
        PyErr_SetString(PyExc_ValueError, "the connection is closed");
        return NULL;
    }
    return &((Rows *)self)->rows;
}

/* Whether all is well; otherwise with SQLiteError set. */
static bool
succeed(PyObject *self, int code)
{
    PyErr_Clear(); /* a VFS in Python may have left one; SQLite has judged it */
    if (code == SQLITE_OK) {
        return true;
    }
    module_types *types = types_of(self);
    const rows *r = &((Rows *)self)->rows;
    if (types != NULL) {
        PyObject *args = Py_BuildValue("is", code, r->api->errmsg(r->db));
        if (args != NULL) {
            PyErr_SetObject(types->sqlite_error, args);
            Py_DECREF(args);
        }
    }
    return false;
}

/* Keeps the GIL while the disk is quick: to get it back may take longer than a read. */
static PyObject *
Rows_read(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    rows *r = open_rows(self);
    uint64_t oid, ahead, age;
    if (r == NULL || !expect(count, 3, "read") || !id_from_int(args[0], &oid) ||
        !tid_from_int(args[1], &ahead) || !tid_from_int(args[2], &age)) {
        return NULL;
    }
    batch found = {0};
    int64_t damaged = 0, begun = nanoseconds();
    int code;
    unsigned *slow = &((Rows *)self)->slow;
    if (*slow) {
        Py_BEGIN_ALLOW_THREADS
        code = rows_read(r, oid, (int64_t)ahead, (int64_t)age, &found, &damaged);
        Py_END_ALLOW_THREADS
        --*slow;
    }
    else {
        code = rows_read(r, oid, (int64_t)ahead, (int64_t)age, &found, &damaged);
        if (nanoseconds() - begun > SLOW_NANOSECONDS) {
            *slow = READS_AFTER_SLOW;
        }
    }
    PyObject *list = succeed(self, code) ? row_list(&found) : NULL;
    batch_close(&found);
    return list == NULL ? NULL : Py_BuildValue("NL", list, (long long)damaged);
}

static PyObject *
change_of(const rows_change *change)
{
    return Py_BuildValue("LLL", (long long)change->changed, (long long)change->count,
                         (long long)change->state_bytes);
}

static PyObject *
Rows_insert(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    rows *r = open_rows(self);
    const batch *given;
    uint64_t age;
    if (r == NULL || !expect(count, 2, "insert") ||
        (given = batch_from(self, args[0])) == NULL || !tid_from_int(args[1], &age)) {
        return NULL;
    }
    rows_change change = {0};
    int code;
    Py_BEGIN_ALLOW_THREADS
    code = rows_insert(r, given, (int64_t)age, &change);
    Py_END_ALLOW_THREADS
    return succeed(self, code) ? change_of(&change) : NULL;
}

static PyObject *
Rows_delete_older(PyObject *self, PyObject *arg)
{
    rows *r = open_rows(self);
    size_t named;
    name *names = r == NULL ? NULL : names_from(arg, &named);
    if (names == NULL) {
        return NULL;
    }
    rows_change change = {0};
    int code;
    Py_BEGIN_ALLOW_THREADS
    code = rows_delete_older(r, names, named, &change);
    Py_END_ALLOW_THREADS
    PyMem_RawFree(names);
    return succeed(self, code) ? change_of(&change) : NULL;
}

static PyObject *
Rows_warm(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    rows *r = open_rows(self);
    uint64_t age;
    if (r == NULL || !expect(count, 2, "warm") || !tid_from_int(args[1], &age)) {
        return NULL;
    }
    PyObject *given = PySequence_Fast(args[0], "gains are a list");
    if (given == NULL) {
        return NULL;
    }
    size_t gained = (size_t)PySequence_Fast_GET_SIZE(given);
    revision_gain *gains = PyMem_RawMalloc((gained + 1) * sizeof *gains);
    bool good = gains != NULL || PyErr_NoMemory() != NULL;
    for (size_t i = 0; good && i < gained; i++) {
        long long oid, tid, gain;
        good = PyArg_Parse(PySequence_Fast_GET_ITEM(given, (Py_ssize_t)i), "(LLL)", &oid, &tid,
                           &gain);
        gains[i] = (revision_gain){(uint64_t)oid, (uint64_t)tid, gain};
    }
    Py_DECREF(given);
    int64_t warmed = 0;
    int code = SQLITE_OK;
    if (good) {
        Py_BEGIN_ALLOW_THREADS
        code = rows_warm(r, gains, gained, (int64_t)age, &warmed);
        Py_END_ALLOW_THREADS
    }
    PyMem_RawFree(gains);
    return good && succeed(self, code) ? PyLong_FromLongLong(warmed) : NULL;
}

/* [(class, rows, state bytes), ...], the least valuable first. */
static PyObject *
weight_list(const rows_weights *weights)
{
    PyObject *list = PyList_New(0);
    for (int class = 0; list != NULL && class < VALUE_CLASSES; class++) {
        if (!weights->count[class]) {
            continue;
        }
        PyObject *one = Py_BuildValue("iLL", class, (long long)weights->count[class],
                                      (long long)weights->state_bytes[class]);
        if (one == NULL || PyList_Append(list, one) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(one);
    }
    return list;
}

static PyObject *
Rows_weigh(PyObject *self, PyObject *arg)
{
    rows *r = open_rows(self);
    uint64_t age;
    if (r == NULL || !tid_from_int(arg, &age)) {
        return NULL;
    }
    rows_weights *weights = PyMem_RawCalloc(1, sizeof *weights);
    if (weights == NULL) {
        return PyErr_NoMemory();
    }
    int code;
    Py_BEGIN_ALLOW_THREADS
    code = rows_weigh(r, (int64_t)age, weights);
    Py_END_ALLOW_THREADS
    PyObject *list = succeed(self, code) ? weight_list(weights) : NULL;
    PyMem_RawFree(weights);
    return list;
}

static PyObject *
Rows_choose(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    rows *r = open_rows(self);
    uint64_t age, below, share;
    if (r == NULL || !expect(count, 3, "choose") || !tid_from_int(args[0], &age) ||
        !tid_from_int(args[1], &below) || !tid_from_int(args[2], &share)) {
        return NULL;
    }
    name *names;
    size_t chosen;
    int code;
    Py_BEGIN_ALLOW_THREADS
    code = rows_choose(r, (int64_t)age, (int)below, (int)share, &names, &chosen);
    Py_END_ALLOW_THREADS
    PyObject *packed = succeed(self, code) ? PyBytes_FromStringAndSize(
                                                 (const char *)names,
                                                 (Py_ssize_t)(chosen * sizeof *names))
                                           : NULL;
    free(names);
    return packed;
}

static PyObject *
Rows_delete_exactly(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    rows *r = open_rows(self);
    const char *packed;
    size_t packed_bytes;
    uint64_t start, rows_max;
    if (r == NULL || !expect(count, 3, "delete_exactly") ||
        !state_from(args[0], &packed, &packed_bytes) || !tid_from_int(args[1], &start) ||
        !tid_from_int(args[2], &rows_max)) {
        return NULL;
    }
    size_t named = packed_bytes / sizeof(name);
    size_t left = start < named ? named - start : 0;
    const name *names = (const name *)packed + (named - left);
    rows_change change = {0};
    int code;
    Py_BEGIN_ALLOW_THREADS
    code = rows_delete_exactly(r, names, left < rows_max ? left : rows_max, &change);
    Py_END_ALLOW_THREADS
    return succeed(self, code) ? change_of(&change) : NULL;
}

static PyObject *
Rows_scan(PyObject *self, PyObject *arg)
{
    rows *r = open_rows(self);
    uint64_t through;
    if (r == NULL || !id_from_int(arg, &through)) {
        return NULL;
    }
    return succeed(self, rows_scan(r, (int64_t)through)) ? Py_NewRef(Py_None) : NULL;
}

static PyObject *
Rows_scan_next(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    rows *r = open_rows(self);
    uint64_t rows_max, bytes_max, age, lowest, highest;
    if (r == NULL || !expect(count, 5, "scan_next") || !tid_from_int(args[0], &rows_max) ||
        !tid_from_int(args[1], &bytes_max) || !tid_from_int(args[2], &age) ||
        !tid_from_int(args[3], &lowest) || !tid_from_int(args[4], &highest)) {
        return NULL;
    }
    Batch *found = make_batch(self);
    if (found == NULL) {
        return NULL;
    }
    int64_t damaged = 0;
    bool done;
    int code;
    Py_BEGIN_ALLOW_THREADS
    code = rows_scan_next(r, rows_max, bytes_max, (int64_t)age, (int)lowest, (int)highest,
                          &found->batch, &damaged, &done);
    Py_END_ALLOW_THREADS
    if (!succeed(self, code)) {
        Py_DECREF(found);
        return NULL;
    }
    return Py_BuildValue("NLO", found, (long long)damaged, done ? Py_True : Py_False);
}

static PyObject *
Rows_scan_end(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    if (!((Rows *)self)->closed) {
        rows_scan_end(&((Rows *)self)->rows);
    }
    Py_RETURN_NONE;
}

/* Integers and texts, which are all that our statements take. */
static bool
bind_all(const rows *r, sqlite3_stmt *statement, PyObject *bindings, int *code)
{
    for (Py_ssize_t i = 0; *code == SQLITE_OK && i < PyTuple_GET_SIZE(bindings); i++) {
        PyObject *value = PyTuple_GET_ITEM(bindings, i);
        Py_ssize_t text_bytes;
        uint64_t number;
        const char *text = PyUnicode_Check(value) ? PyUnicode_AsUTF8AndSize(value, &text_bytes)
                                                  : NULL;
        if (text != NULL) {
            *code = r->api->bind_text(statement, (int)i + 1, text, (int)text_bytes,
                                      SQLITE_STATIC);
        }
        else if (PyErr_Occurred() || !id_from_int(value, &number)) {
            return false;
        }
        else {
            *code = r->api->bind_int64(statement, (int)i + 1, (int64_t)number);
        }
    }
    return true;
}

/* A column of the present row; no floats, of which we have none. */
static PyObject *
column(const rows *r, sqlite3_stmt *statement, int number)
{
    switch (r->api->column_type(statement, number)) {
    case SQLITE_INTEGER:
        return PyLong_FromLongLong(r->api->column_int64(statement, number));
    case SQLITE_TEXT: {
        const char *text = (const char *)r->api->column_text(statement, number);
        return PyUnicode_DecodeUTF8(text, r->api->column_bytes(statement, number), "strict");
    }
    case SQLITE_BLOB: {
        const char *blob = r->api->column_blob(statement, number);
        return PyBytes_FromStringAndSize(blob, r->api->column_bytes(statement, number));
    }
    default:
        Py_RETURN_NONE;
    }
}

static bool
append_row(const rows *r, sqlite3_stmt *statement, PyObject *list)
{
    int columns = r->api->column_count(statement);
    PyObject *row = PyTuple_New(columns);
    bool good = row != NULL;
    for (int i = 0; good && i < columns; i++) {
        PyObject *value = column(r, statement, i);
        good = value != NULL;
        if (good) {
            PyTuple_SET_ITEM(row, i, value);
        }
    }
    good = good && PyList_Append(list, row) == 0;
    Py_XDECREF(row);
    return good;
}

/* All rows of a statement into the list; its code, unless an error is set. */
static int
collect(const rows *r, sqlite3_stmt *statement, bool quickly, PyObject *list)
{
    for (;;) {
        int code;
        if (quickly) {
            code = r->api->step(statement);
        }
        else {
            Py_BEGIN_ALLOW_THREADS
            code = r->api->step(statement);
            Py_END_ALLOW_THREADS
        }
        if (code != SQLITE_ROW) {
            return code;
        }
        PyErr_Clear(); /* as in succeed() */
        if (!append_row(r, statement, list)) {
            return SQLITE_ROW;
        }
    }
}

static PyObject *
Rows_ask(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    rows *r = open_rows(self);
    if (r == NULL || !expect(count, 3, "ask")) {
        return NULL;
    }
    if (!PyUnicode_Check(args[0]) || !PyTuple_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "a question is a str, a tuple, and whether it is quick");
        return NULL;
    }
    const char *sql = PyUnicode_AsUTF8(args[0]);
    PyObject *list = sql == NULL ? NULL : PyList_New(0);
    if (list == NULL) {
        return NULL;
    }
    sqlite3_stmt *statement = NULL;
    int code = r->api->prepare_v3(r->db, sql, -1, 0, &statement, NULL);
    bool good = bind_all(r, statement, args[1], &code);
    if (good && code == SQLITE_OK) {
        code = collect(r, statement, args[2] == Py_True, list);
        good = code != SQLITE_ROW;
    }
    int final = r->api->finalize(statement);
    code = code == SQLITE_DONE ? final : code;
    if (!good || !succeed(self, code)) {
        Py_DECREF(list);
        return NULL;
    }
    return list;
}

static PyMethodDef Rows_methods[] = {
    {"ask", FASTCALL(Rows_ask), METH_FASTCALL, NULL},
    {"read", FASTCALL(Rows_read), METH_FASTCALL, NULL},
    {"insert", FASTCALL(Rows_insert), METH_FASTCALL, NULL},
    {"delete_older", Rows_delete_older, METH_O, NULL},
    {"warm", FASTCALL(Rows_warm), METH_FASTCALL, NULL},
    {"weigh", Rows_weigh, METH_O, NULL},
    {"choose", FASTCALL(Rows_choose), METH_FASTCALL, NULL},
    {"delete_exactly", FASTCALL(Rows_delete_exactly), METH_FASTCALL, NULL},
    {"scan", Rows_scan, METH_O, NULL},
    {"scan_next", FASTCALL(Rows_scan_next), METH_FASTCALL, NULL},
    {"scan_end", Rows_scan_end, METH_NOARGS, NULL},
    {"close", Rows_close, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot Rows_slots[] = {
    {Py_tp_doc, "The file's rows on one connection; see _store.pyi."},
    {Py_tp_new, Rows_new},
    {Py_tp_dealloc, Rows_dealloc},
    {Py_tp_methods, Rows_methods},
    {0, NULL},
};

static PyType_Spec Rows_spec = {
    .name = "zodbcache._core._store.Rows",
    .basicsize = sizeof(Rows),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = Rows_slots,
};

static PyObject *
module_checksum(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    uint64_t oid, tid;
    const char *state;
    size_t state_bytes;
    if (!expect(count, 3, "checksum") || !id_from_int(args[0], &oid) ||
        !id_from_int(args[1], &tid) || !state_from(args[2], &state, &state_bytes)) {
        return NULL;
    }
    return PyLong_FromUnsignedLong(rows_checksum(oid, tid, state, state_bytes));
}

static PyObject *
module_keep(PyObject *Py_UNUSED(module), PyObject *object)
{
    Py_INCREF(object);
    Py_RETURN_NONE;
}

static PyMethodDef module_methods[] = {
    {"keep", module_keep, METH_O, NULL},
    {"checksum", FASTCALL(module_checksum), METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

/* ---- the module -------------------------------------------------------- */

/* A new reference, or NULL. */
static PyTypeObject *
add_type(PyObject *module, PyType_Spec *spec, PyObject *base)
{
    PyObject *type = PyType_FromModuleAndSpec(module, spec, base);
    if (type != NULL && PyModule_AddType(module, (PyTypeObject *)type) < 0) {
        Py_CLEAR(type);
    }
    return (PyTypeObject *)type;
}

static int
module_exec(PyObject *module)
{
    PyType_Spec *others[] = {&Reader_spec, &PinnedReader_spec, &Rows_spec};
    module_types *types = PyModule_GetState(module);
    types->batch = add_type(module, &Batch_spec, NULL);
    types->deltas = add_type(module, &Deltas_spec, NULL);
    types->sqlite_error = PyErr_NewExceptionWithDoc(
        "zodbcache._core._store.SQLiteError", "Its args: SQLite's result code, and its message.",
        NULL, NULL);
    bool good = types->batch != NULL && types->deltas != NULL && types->sqlite_error != NULL &&
                PyModule_AddObjectRef(module, "SQLiteError", types->sqlite_error) == 0;
    PyTypeObject *store = good ? add_type(module, &Store_spec, NULL) : NULL;
    PyTypeObject *temp =
        store == NULL ? NULL : add_type(module, &TempStore_spec, (PyObject *)store);
    good = temp != NULL;
    Py_XDECREF(store);
    Py_XDECREF(temp);
    for (size_t i = 0; good && i < sizeof others / sizeof *others; i++) {
        PyTypeObject *type = add_type(module, others[i], NULL);
        good = type != NULL;
        Py_XDECREF(type);
    }
    crc32_begin();
    return good ? 0 : -1;
}

static int
module_traverse(PyObject *module, visitproc visit, void *arg)
{
    module_types *types = PyModule_GetState(module);
    Py_VISIT(types->batch);
    Py_VISIT(types->deltas);
    Py_VISIT(types->sqlite_error);
    return 0;
}

static int
module_clear(PyObject *module)
{
    module_types *types = PyModule_GetState(module);
    Py_CLEAR(types->batch);
    Py_CLEAR(types->deltas);
    Py_CLEAR(types->sqlite_error);
    return 0;
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, module_exec},
#if PY_VERSION_HEX >= 0x030c0000
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_SUPPORTED},
#endif
    {0, NULL},
};

static PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "zodbcache._core._store",
    .m_doc = "The C core: the memory tier, the invalidation log's deltas, the file's rows.",
    .m_size = sizeof(module_types),
    .m_methods = module_methods,
    .m_slots = module_slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
};

PyMODINIT_FUNC
PyInit__store(void)
{
    return PyModuleDef_Init(&definition);
}
