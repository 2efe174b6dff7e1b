/* What a memory tier can do, wherever it keeps its revisions.
 *
 * The arena's store (store.h) is one kind, the temporary database's (tempstore.h)
 * another.  zodbcache.interfaces.IStore says what each function means; I1 and
 * I5 are in store.h.  Functions that look something up count nothing unless
 * they are called load.
 *
 * No function blocks but for a disk that is slow, and none is safe to call from
 * two threads at once.
 */
#ifndef ZODBCACHE_TIER_H
#define ZODBCACHE_TIER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "batch.h"
#include "deltas.h"
#include "oid.h"

/* Closed revisions of one oid that are kept at most, the newest ones. */
enum { REVISIONS_MAX = 8 };

typedef struct {
    uint64_t hits, file_hits, misses, sets, evictions, rejections, moved_bytes;
} tier_counters;

typedef struct {
    size_t entries, state_bytes, used_bytes, hole_bytes;
    size_t eden_entries, probation_entries, protected_entries;
} tier_sizes;

/* A revision that was looked up; the state is valid until kind->release. */
typedef struct {
    uint64_t tid;
    uint64_t end; /* 0: open */
    const char *state;
    size_t state_bytes;
    unsigned frequency; /* for peek only */
} held;

/* What is known of the end of a revision that somebody changed. */
enum ending {
    ENDED_UNKNOWN, /* nothing that a reader could use: it is dropped */
    ENDED_EXACTLY, /* at this tid */
    ENDED_LATER,   /* after the checkpoint: it stays for readers up to there */
};

typedef struct tier tier;

typedef struct {
    void (*close)(tier *t);

    /* The revision visible just before a tid, its end known; or the one visible
     * at a tid.  Both count. */
    bool (*load_before)(tier *t, uint64_t oid, uint64_t before, held *found);
    bool (*load_at)(tier *t, uint64_t oid, uint64_t at, held *found);
    bool (*holds)(tier *t, uint64_t oid, uint64_t at);
    bool (*recall)(tier *t, uint64_t oid, uint64_t tid, held *found);
    bool (*peek)(tier *t, uint64_t oid, held *found);

    /* After each of those that found something.  NULL: nothing is to be done. */
    void (*release)(tier *t);

    bool (*insert)(tier *t, uint64_t oid, uint64_t tid, uint64_t end, const char *state,
                   size_t state_bytes);
    bool (*promote)(tier *t, uint64_t oid, uint64_t tid, const char *state, size_t state_bytes,
                    unsigned frequency);
    bool (*restore)(tier *t, uint64_t oid, uint64_t tid, const char *state, size_t state_bytes,
                    unsigned frequency);
    void (*end)(tier *t, uint64_t oid, uint64_t tid, enum ending ending);
    void (*forget)(tier *t, uint64_t oid);
    void (*clear)(tier *t);
    void (*reserve)(tier *t, size_t size_bytes);

    /* Sets *oids to a list that the caller frees, NULL without memory. */
    void (*take_unsaved)(tier *t, uint64_t **oids, size_t *count);
    void (*return_unsaved)(tier *t, const uint64_t *oids, size_t count);
    void (*search_unsaved)(tier *t);
    size_t (*pack)(tier *t, const uint64_t *oids, size_t count, uint64_t through, size_t bytes_max,
                   batch *found);
    void (*mark_unsaved)(tier *t);

    /* So many gains at most: one for each slot. */
    size_t (*heated)(tier *t, size_t *position, size_t slots, unsigned faded,
                     revision_gain *gains);
    size_t (*slots)(const tier *t);

    void (*measure)(const tier *t, tier_sizes *sizes);
    const char *(*check)(tier *t);
} tier_kind;

struct tier {
    const tier_kind *kind;
    uint64_t checkpoint;       /* never lowered but by tier_restart */
    long long history;         /* how often tier_restart was called */
    size_t limit_bytes;
    size_t unsaved_bytes;      /* states of the open revisions that the file may lack */
    bool unsaved_left;         /* take_unsaved has handed over a part of them, or none */
    uint32_t object_max_bytes; /* longer states are not kept */
    tier_counters counters;
};

/* After everything that changed up to the tid has been ended. */
static inline void
tier_raise_checkpoint(tier *t, uint64_t tid)
{
    t->checkpoint = tid > t->checkpoint ? tid : t->checkpoint;
}

static inline void
tier_restart(tier *t, uint64_t checkpoint)
{
    t->kind->clear(t);
    t->checkpoint = checkpoint;
    t->history++;
}

/* What changed since known is among the deltas: keep the other rows, current
 * through known, of a batch from the file.  Return false when there is no more
 * room. */
static inline bool
tier_restore_batch(tier *t, const batch *given, const deltas *changed, uint64_t known)
{
    for (const batch_row *row = given->rows; row < given->rows + given->count; row++) {
        uint64_t name = deltas_get(changed, row->oid);
        if (name <= (known > row->tid ? known : row->tid) &&
            !t->kind->restore(t, row->oid, row->tid, batch_state(given, row), row->state_bytes,
                              (unsigned)row->frequency)) {
            return false;
        }
    }
    return true;
}

#endif
