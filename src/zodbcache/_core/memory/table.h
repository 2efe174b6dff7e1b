/* From an oid's hash to the offsets of its revisions.
 *
 * Open addressing, ordered by hash: the home of a hash is its share of the
 * slots (multiplied, not masked, so any number of slots will do), and slots
 * are sorted, so that a search ends at the first larger hash.  Hence a wrong
 * slot costs no look at a block, the table grows by a quarter in place in one
 * pass over the slots, and it is never emptier than two thirds once grown.
 *
 * Each revision has a slot of its own; those of one oid are neighbours.
 *
 * table_first: O(1) expected.  table_add, table_remove: O(1) expected, moving
 * the slots up to the next empty one.
 */
#ifndef ZODBCACHE_TABLE_H
#define ZODBCACHE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arena.h"

typedef struct {
    uint64_t *slots;        /* hash << 32 | offset; 0 is empty */
    size_t reserved_slots;
    size_t home_slots;      /* those that hashes are spread over */
    size_t count;
} table;

bool table_open(table *t, size_t reserved_slots);
void table_close(table *t);
void table_clear(table *t);

/* Return false when there is no place and the table cannot grow. */
bool table_add(table *t, uint32_t hash, offset_t block);

/* The slot must be there. */
void table_remove(table *t, uint32_t hash, offset_t block);

/* The block has moved. */
void table_replace(table *t, uint32_t hash, offset_t from, offset_t to);

/* Bytes that belong to the table now, and after the next add. */
size_t table_bytes(const table *t);
size_t table_bytes_after_add(const table *t);

const char *table_check(const table *t);

static inline uint32_t
slot_hash(uint64_t slot)
{
    return (uint32_t)(slot >> 32);
}

static inline offset_t
slot_offset(uint64_t slot)
{
    return (offset_t)slot;
}

/* The first slot with this hash or, if there is none, the slot where the
 * search ended.  The slots of one hash follow each other. */
static inline const uint64_t *
table_first(const table *t, uint32_t hash)
{
    const uint64_t *slot = t->slots + (((uint64_t)hash * t->home_slots) >> 32);
    while (*slot && slot_hash(*slot) < hash) {
        slot++;
    }
    return slot;
}

#endif
