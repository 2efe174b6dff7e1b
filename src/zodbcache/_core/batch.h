/* Rows on their way between memory and the file, in neither tier.
 *
 * One owner at a time: who fills it, then who empties it; so it may be used
 * without the GIL.
 */
#ifndef ZODBCACHE_BATCH_H
#define ZODBCACHE_BATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    uint64_t oid;
    uint64_t tid;
    int64_t frequency;
    uint32_t state_bytes;
    size_t state; /* offset into the states */
} batch_row;

typedef struct {
    batch_row *rows;
    size_t count, capacity;
    char *states;
    size_t states_bytes, states_capacity;
} batch;

void batch_close(batch *b);

/* Return false when there is no memory; the batch is as it was then. */
bool batch_add(batch *b, uint64_t oid, uint64_t tid, int64_t frequency, const void *state,
               size_t state_bytes);

static inline const char *
batch_state(const batch *b, const batch_row *row)
{
    return b->states == NULL ? "" : b->states + row->state;
}

#endif
