/* Revisions of objects in memory, bounded by bytes, under one rule.
 *
 * I1  Every open revision is current through the checkpoint.  It is visible
 *     before b when tid < b and b - 1 <= checkpoint; a closed one when
 *     tid < b <= end.  The revisions of one oid never overlap in time, so at
 *     most one is open.  Where the end is a bound only, who asks for the end
 *     does not get the revision.
 * I5  table + sketch + reserved + the arena up to top stay within the limit.
 *
 * Segmented LRU with lazy promotion: a hit only counts up in the revision;
 * lists move when a victim is sought.  What leaves eden must have been asked
 * for again at least as often, a byte, as the victim it displaces (TinyLFU;
 * sketch.h).
 *
 * No function here blocks, and none is safe to call from two threads at once.
 */
#ifndef ZODBCACHE_STORE_H
#define ZODBCACHE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arena.h"
#include "batch.h"
#include "revision.h"
#include "segments.h"
#include "sketch.h"
#include "table.h"
#include "tier.h"

#define STORE_LIMIT_MIN_BYTES ((size_t)256 << 10)
/* A hole as large as the arena still has its granules in an extent's 30 bits. */
#define STORE_LIMIT_MAX_BYTES (((size_t)8 << 30) - ((size_t)1 << 20))

typedef struct {
    tier tier;
    arena arena;
    table table;
    sketch sketch;
    segments segments;
    size_t reserved_bytes; /* somebody else's, counted against the limit */
    size_t state_bytes;    /* sum over all revisions */
    uint64_t *unsaved;     /* NULL, or oids of open revisions that the file may lack, and others */
    uint32_t unsaved_count, unsaved_max;
    bool unsaved_overflow; /* not all are listed: only a search finds them */
} store;

/* Return false when there is no address space. */
bool store_open(store *s, size_t limit_bytes, size_t object_max_bytes);
void store_close(store *s);

/* A store as a tier, which its close() frees; NULL when there is no memory. */
tier *store_make(size_t limit_bytes, size_t object_max_bytes);

/* The revision visible before this tid, its end known; or NULL.  Counts; marks
 * the hit. */
const revision *store_load_before(store *s, uint64_t oid, uint64_t before);

/* The revision visible at this tid, or NULL.  Counts; marks the hit. */
const revision *store_load_at(store *s, uint64_t oid, uint64_t at);

/* Likewise, and neither counts nor marks. */
bool store_holds(const store *s, uint64_t oid, uint64_t at);

/* The oid's revision of just this tid, or NULL. */
const revision *store_revision(const store *s, uint64_t oid, uint64_t tid);

/* The open revision of the oid, or NULL. */
revision *store_open_revision(const store *s, uint64_t oid);

/* How often the revision's oid was asked for lately: 0 to FREQUENCY_MAX. */
unsigned store_frequency(const store *s, const revision *r);

/* Keep a revision; end 0 means open.  Return whether it is held afterwards. */
bool store_insert(store *s, uint64_t oid, uint64_t tid, uint64_t end, const char *state,
                  size_t state_bytes);

/* Keep an open revision that the file has, if there is room without evicting. */
bool store_restore(store *s, uint64_t oid, uint64_t tid, const char *state, size_t state_bytes,
                   unsigned frequency);

/* Keep an open revision that a read found in the file, making room for it. */
bool store_promote(store *s, uint64_t oid, uint64_t tid, const char *state, size_t state_bytes,
                   unsigned frequency);

/* End the open revision if it is older than tid. */
void store_end(store *s, uint64_t oid, uint64_t tid, enum ending ending);

void store_forget(store *s, uint64_t oid);
void store_clear(store *s);
void store_reserve(store *s, size_t size_bytes);

/* From now on list what is unsaved: somebody asks for it. */
void store_list_unsaved(store *s);

/* saving.c: what the file lacks. */

/* An open revision came that the file may lack; or left, or was saved. */
void store_note_unsaved(store *s, const revision *r);
void store_forget_unsaved(store *s, const revision *r);

/* Hand over the oids of what came since the last time, a list that the caller
 * frees; with some that are not open or saved by now.  NULL: no memory. */
uint64_t *store_take_unsaved(store *s, size_t *count);

/* The file has not got what was handed over or packed of these oids. */
void store_return_unsaved(store *s, const uint64_t *oids, size_t count);

/* Append the unsaved revisions of these oids that are proven through a tid to
 * the batch, as saved, until it has so many bytes.  The others are noted anew.
 * Return how many oids were dealt with; less than all when there is no memory. */
size_t store_pack(store *s, const uint64_t *oids, size_t count, uint64_t through,
                  size_t bytes_max, batch *found);

void store_mark_saved(store *s, revision *r);

/* The file has none of the revisions any more. */
void store_mark_unsaved(store *s);

/* What was asked for more than twice as often as the file has heard of, among
 * so many slots of the table after *position, which is 0 after the last one.
 * faded: by how much what the file knew has aged since it was told. */
size_t store_heated(store *s, size_t *position, size_t slots, unsigned faded,
                    revision_gain *gains);

/* Bytes held against the limit now. */
size_t store_used_bytes(const store *s);

/* NULL, or which invariant does not hold.  O(n). */
const char *store_check(const store *s);

/* victim.c: who has to go, or 0 when nobody is left; and where eden ends. */
offset_t store_pick_victim(store *s);
void store_settle_eden(store *s);
uint32_t store_protected_target(const store *s);

/* compact.c: slide blocks until there is a hole of so many granules, or so
 * many were moved. */
void store_compact(store *s, uint32_t granules, size_t work_granules);

#endif
