#include "deltas.h"

#include <stdlib.h>

#include "oid.h"

enum { FIRST_CAPACITY = 64 };

static delta *
slot_for(const deltas *d, uint64_t oid)
{
    size_t i = (size_t)oid_hash(oid) & (d->capacity - 1);
    while (d->slots[i].tid && d->slots[i].oid != oid) {
        i = (i + 1) & (d->capacity - 1);
    }
    return &d->slots[i];
}

/* Into a new table of this capacity, without what was named up to tid. */
static bool
rebuild(deltas *d, size_t capacity, uint64_t tid)
{
    deltas fresh = {calloc(capacity, sizeof(delta)), capacity, 0};
    if (fresh.slots == NULL) {
        return false;
    }
    for (size_t i = 0; i < d->capacity; i++) {
        if (d->slots[i].tid > tid) {
            *slot_for(&fresh, d->slots[i].oid) = d->slots[i];
            fresh.count++;
        }
    }
    free(d->slots);
    *d = fresh;
    return true;
}

void
deltas_open(deltas *d)
{
    *d = (deltas){NULL, 0, 0};
}

void
deltas_close(deltas *d)
{
    free(d->slots);
    deltas_open(d);
}

bool
deltas_name(deltas *d, uint64_t oid, uint64_t tid)
{
    if (4 * (d->count + 1) > 3 * d->capacity &&
        !rebuild(d, d->capacity ? 2 * d->capacity : FIRST_CAPACITY, 0)) {
        return false;
    }
    delta *slot = slot_for(d, oid);
    if (!slot->tid) {
        slot->oid = oid;
        d->count++;
    }
    slot->tid = tid > slot->tid ? tid : slot->tid;
    return true;
}

uint64_t
deltas_get(const deltas *d, uint64_t oid)
{
    return d->capacity ? slot_for(d, oid)->tid : 0;
}

bool
deltas_trim(deltas *d, uint64_t tid)
{
    size_t kept = 0;
    for (size_t i = 0; i < d->capacity; i++) {
        kept += d->slots[i].tid > tid;
    }
    if (!kept) {
        deltas_close(d);
        return true;
    }
    size_t capacity = FIRST_CAPACITY;
    while (4 * (kept + 1) > 3 * capacity) {
        capacity *= 2;
    }
    return rebuild(d, capacity, tid);
}
