/* The arena's store as a tier. */
#include <stdlib.h>

#include "store.h"

static inline store *
store_of(tier *t)
{
    return (store *)t;
}

/* Whether there is a revision; what is known of it. */
static bool
tell(const revision *r, held *found)
{
    if (r == NULL) {
        return false;
    }
    found->tid = r->tid;
    found->end = revision_end(r);
    found->state = revision_state(r);
    found->state_bytes = revision_state_bytes(r);
    return true;
}

static void
close(tier *t)
{
    store_close(store_of(t));
    free(t);
}

static bool
load_before(tier *t, uint64_t oid, uint64_t before, held *found)
{
    return tell(store_load_before(store_of(t), oid, before), found);
}

static bool
load_at(tier *t, uint64_t oid, uint64_t at, held *found)
{
    return tell(store_load_at(store_of(t), oid, at), found);
}

static bool
holds(tier *t, uint64_t oid, uint64_t at)
{
    return store_holds(store_of(t), oid, at);
}

static bool
recall(tier *t, uint64_t oid, uint64_t tid, held *found)
{
    return tell(store_revision(store_of(t), oid, tid), found);
}

static bool
peek(tier *t, uint64_t oid, held *found)
{
    const revision *r = store_open_revision(store_of(t), oid);
    if (!tell(r, found)) {
        return false;
    }
    found->frequency = store_frequency(store_of(t), r);
    return true;
}

static bool
insert(tier *t, uint64_t oid, uint64_t tid, uint64_t end, const char *state, size_t state_bytes)
{
    return store_insert(store_of(t), oid, tid, end, state, state_bytes);
}

static bool
promote(tier *t, uint64_t oid, uint64_t tid, const char *state, size_t state_bytes,
        unsigned frequency)
{
    return store_promote(store_of(t), oid, tid, state, state_bytes, frequency);
}

static bool
restore(tier *t, uint64_t oid, uint64_t tid, const char *state, size_t state_bytes,
        unsigned frequency)
{
    return store_restore(store_of(t), oid, tid, state, state_bytes, frequency);
}

static void
end(tier *t, uint64_t oid, uint64_t tid, enum ending ending)
{
    store_end(store_of(t), oid, tid, ending);
}

static void
forget(tier *t, uint64_t oid)
{
    store_forget(store_of(t), oid);
}

static void
clear(tier *t)
{
    store_clear(store_of(t));
}

static void
reserve(tier *t, size_t size_bytes)
{
    store_reserve(store_of(t), size_bytes);
}

static void
take_unsaved(tier *t, uint64_t **oids, size_t *count)
{
    *oids = store_take_unsaved(store_of(t), count);
}

static void
return_unsaved(tier *t, const uint64_t *oids, size_t count)
{
    store_return_unsaved(store_of(t), oids, count);
}

static void
search_unsaved(tier *t)
{
    store_of(t)->unsaved_overflow = true;
}

static size_t
pack(tier *t, const uint64_t *oids, size_t count, uint64_t through, size_t bytes_max, batch *found)
{
    return store_pack(store_of(t), oids, count, through, bytes_max, found);
}

static void
mark_unsaved(tier *t)
{
    store_mark_unsaved(store_of(t));
}

static size_t
heated(tier *t, size_t *position, size_t slots, unsigned faded, revision_gain *gains)
{
    return store_heated(store_of(t), position, slots, faded, gains);
}

static size_t
slots(const tier *t)
{
    return table_bytes(&((const store *)t)->table) / sizeof(uint64_t);
}

static void
measure(const tier *t, tier_sizes *sizes)
{
    const store *s = (const store *)t;
    *sizes = (tier_sizes){
        .entries = s->table.count,
        .state_bytes = s->state_bytes,
        .used_bytes = store_used_bytes(s),
        .hole_bytes = (size_t)arena_holes(&s->arena) * GRANULE_BYTES,
        .eden_entries = s->segments.list[EDEN].count,
        .probation_entries = s->segments.list[PROBATION].count,
        .protected_entries = s->segments.list[PROTECTED].count,
    };
}

static const char *
check(tier *t)
{
    return store_check(store_of(t));
}

static const tier_kind KIND = {
    .close = close,
    .load_before = load_before,
    .load_at = load_at,
    .holds = holds,
    .recall = recall,
    .peek = peek,
    .insert = insert,
    .promote = promote,
    .restore = restore,
    .end = end,
    .forget = forget,
    .clear = clear,
    .reserve = reserve,
    .take_unsaved = take_unsaved,
    .return_unsaved = return_unsaved,
    .search_unsaved = search_unsaved,
    .pack = pack,
    .mark_unsaved = mark_unsaved,
    .heated = heated,
    .slots = slots,
    .measure = measure,
    .check = check,
};

tier *
store_make(size_t limit_bytes, size_t object_max_bytes)
{
    store *s = malloc(sizeof *s);
    if (s != NULL && !store_open(s, limit_bytes, object_max_bytes)) {
        free(s);
        return NULL;
    }
    if (s != NULL) {
        s->tier.kind = &KIND;
    }
    return s == NULL ? NULL : &s->tier;
}
