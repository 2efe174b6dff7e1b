/* {oid: tid} of what changed: an open-addressed table of 16 bytes a slot.
 *
 * deltas_name, deltas_get: O(1) expected.  deltas_trim: O(n).
 */
#ifndef ZODBCACHE_DELTAS_H
#define ZODBCACHE_DELTAS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    uint64_t oid;
    uint64_t tid; /* 0: the slot is empty */
} delta;

typedef struct {
    delta *slots;
    size_t capacity; /* a power of two, or 0 */
    size_t count;
} deltas;

void deltas_open(deltas *d);
void deltas_close(deltas *d);

/* The oid's tid becomes the greater of the old and this one (> 0).  Return
 * false when there is no memory; nothing has changed then. */
bool deltas_name(deltas *d, uint64_t oid, uint64_t tid);

/* 0 when the oid was not named. */
uint64_t deltas_get(const deltas *d, uint64_t oid);

/* Forget what was named up to tid.  Return false when there is no memory. */
bool deltas_trim(deltas *d, uint64_t tid);

static inline size_t
deltas_bytes(const deltas *d)
{
    return d->capacity * sizeof(delta);
}

#endif
