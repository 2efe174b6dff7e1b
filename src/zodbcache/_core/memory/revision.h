/* A block of the arena that holds one revision: header, then the state.
 *
 * A closed revision has its end tid, 8 bytes, between header and state.
 */
#ifndef ZODBCACHE_REVISION_H
#define ZODBCACHE_REVISION_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "arena.h"
#include "oid.h"

enum segment_id { EDEN, PROBATION, PROTECTED, SEGMENTS, UNLINKED = SEGMENTS };

typedef struct {
    uint32_t extent;      /* the arena's */
    uint16_t slack;       /* bytes of the block behind the state */
    uint8_t segment: 4;   /* enum segment_id: the list it is linked in */
    uint8_t told: 4;      /* the frequency that the file has heard of, if it is saved */
    uint8_t frequency: 4; /* hits since it came into its segment; halved on a second round */
    uint8_t closed: 1;    /* it is visible before its end only */
    uint8_t saved: 1;     /* the file has it */
    uint8_t restored: 1;  /* it came from the file */
    uint8_t bounded: 1;   /* closed, and its successor came at its end or some time later */
    offset_t newer;       /* towards the segment's head; 0 at the head */
    offset_t older;
    uint64_t oid;
    uint64_t tid;
} revision;

static inline revision *
revision_at(const arena *a, offset_t block)
{
    return arena_at(a, block);
}

static inline char *
revision_state(const revision *r)
{
    return (char *)(r + 1) + (r->closed ? sizeof(uint64_t) : 0);
}

static inline uint32_t
revision_state_bytes(const revision *r)
{
    uint32_t block_bytes = (r->extent >> 2) * GRANULE_BYTES;
    return block_bytes - r->slack - (uint32_t)sizeof(revision) -
           (r->closed ? (uint32_t)sizeof(uint64_t) : 0);
}

/* The end of a closed revision; 0 for an open one. */
static inline uint64_t
revision_end(const revision *r)
{
    uint64_t end = 0;
    if (r->closed) {
        memcpy(&end, r + 1, sizeof end);
    }
    return end;
}

static inline uint32_t
revision_granules(uint32_t state_bytes, bool closed)
{
    uint64_t bytes = sizeof(revision) + (closed ? sizeof(uint64_t) : 0) + (uint64_t)state_bytes;
    return (uint32_t)((bytes + GRANULE_BYTES - 1) / GRANULE_BYTES);
}

/* The table takes the upper half of the hash, the sketch the lower. */
static inline uint32_t
table_hash(uint64_t oid)
{
    return (uint32_t)(oid_hash(oid) >> 32);
}

static inline uint32_t
sketch_hash(uint64_t oid)
{
    return (uint32_t)oid_hash(oid);
}

#endif
