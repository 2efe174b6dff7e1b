/* The store in a temporary database as a tier.
 *
 * Whatever a call runs into, settle() has the last word.
 */
#include <stdlib.h>
#include <string.h>

#include "tempstore.h"

/* When there is no room on the disk, the database may become so large the next
 * time; and twice as large when so much has been kept since. */
enum { ROOM_PERCENT = 90, ROOM_AFTER = 1 << 18 };

/* Without a database, one attempt of so many to keep something tries to have one again. */
enum { REFUSALS = 10000 };

enum { BLOB_MAX_BYTES = 1 << 29 };

/* So that marks take three bytes in a row from the first one on, as places take four. */
enum { FIRST_EPOCH = 1 << 12 };

static inline tempstore *
store_of(tier *t)
{
    return (tempstore *)t;
}

static void
note_fault(tempstore *s)
{
    s->last_fault = s->fault;
    s->faults++;
}

static void
reset_counts(tempstore *s)
{
    queue_clear(s);
    s->known_bytes = s->added_bytes = s->added_rows = 0;
    s->current_count = s->ended_count = 0;
    s->current_bytes = s->ended_bytes = 0;
    s->tier.unsaved_bytes = 0;
    s->unsaved_count = 0;
    s->tier.unsaved_left = false;
}

static void
begin_anew(tempstore *s)
{
    tempdb_close(s);
    reset_counts(s);
    s->fault = SQLITE_OK;
    s->refusals = 0;
    if (tempdb_open(s)) {
        s->known_bytes = tempdb_bytes(s);
    }
    else {
        note_fault(s);
    }
}

/* At the end of each call: whatever an error has left half done is thrown away. */
static void
settle(tempstore *s)
{
    if (s->fault == SQLITE_OK || s->db == NULL) {
        return;
    }
    int code = s->fault & 0xff;
    if (code == SQLITE_FULL || code == SQLITE_CANTOPEN) {
        size_t room = (s->known_bytes + s->added_bytes) / 100 * ROOM_PERCENT;
        s->room_bytes = room < s->room_bytes ? room : s->room_bytes;
        s->kept = 0;
    }
    note_fault(s);
    begin_anew(s);
}

static void
release(tier *t)
{
    tempstore *s = store_of(t);
    if (s->reading != NULL) {
        tempdb_reset(s, s->reading);
        s->reading = NULL;
    }
    settle(s);
}

static bool
load(tempstore *s, uint64_t oid, const wish *w, held *found)
{
    uint64_t place;
    int64_t marks;
    queue_settle(s, false);
    if (!tempstore_find(s, oid, w, found, &place, &marks)) {
        s->tier.counters.misses++;
        settle(s);
        return false;
    }
    queue_note(s, place);
    s->tier.counters.hits++;
    s->tier.counters.file_hits += (marks & MARK_RESTORED) != 0;
    return true;
}

static bool
load_before(tier *t, uint64_t oid, uint64_t before, held *found)
{
    return load(store_of(t), oid, &(wish){.before = before, .end_wanted = true}, found);
}

static bool
load_at(tier *t, uint64_t oid, uint64_t at, held *found)
{
    return load(store_of(t), oid, &(wish){.before = at + 1}, found);
}

static bool
holds(tier *t, uint64_t oid, uint64_t at)
{
    held found;
    uint64_t place;
    int64_t marks;
    bool is_held =
        tempstore_find(store_of(t), oid, &(wish){.before = at + 1}, &found, &place, &marks);
    release(t);
    return is_held;
}

static bool
recall(tier *t, uint64_t oid, uint64_t tid, held *found)
{
    uint64_t place;
    int64_t marks;
    wish w = {.tid = tid, .exactly = true};
    bool is_held = tempstore_find(store_of(t), oid, &w, found, &place, &marks);
    if (!is_held) {
        release(t);
    }
    return is_held;
}

static bool
peek(tier *t, uint64_t oid, held *found)
{
    tempstore *s = store_of(t);
    row r;
    if (!row_look(s, oid, &r)) {
        release(t);
        return false;
    }
    found->frequency = heat_frequency(queue_heat(s, r.place));
    return recall(t, oid, r.tid, found);
}

static bool
keep(tempstore *s, const entrant *e)
{
    if (s->db == NULL && ++s->refusals >= REFUSALS) {
        begin_anew(s);
    }
    if (s->room_bytes < s->tier.limit_bytes && ++s->kept == ROOM_AFTER) {
        s->room_bytes *= 2;
        s->kept = 0;
    }
    bool is_kept = tempstore_keep(s, e) && s->fault == SQLITE_OK;
    settle(s);
    return is_kept;
}

static bool
insert(tier *t, uint64_t oid, uint64_t tid, uint64_t end, const char *state, size_t state_bytes)
{
    entrant e = {
        .oid = oid,
        .tid = tid,
        .end = end,
        .state = state,
        .state_bytes = state_bytes,
        .heat = heat_of(1, 0),
    };
    return keep(store_of(t), &e);
}

/* What the file has. */
static entrant
from_file(uint64_t oid, uint64_t tid, const char *state, size_t state_bytes, unsigned frequency)
{
    unsigned told = frequency < FREQUENCY_MAX ? frequency : FREQUENCY_MAX;
    return (entrant){.oid = oid,
                     .tid = tid,
                     .state = state,
                     .state_bytes = state_bytes,
                     .restored = true,
                     .told = told,
                     .heat = heat_of(told, told > 1)};
}

static bool
promote(tier *t, uint64_t oid, uint64_t tid, const char *state, size_t state_bytes,
        unsigned frequency)
{
    entrant e = from_file(oid, tid, state, state_bytes, frequency);
    e.heat = heat_of(e.told < FREQUENCY_MAX ? e.told + 1 : FREQUENCY_MAX, 0);
    return keep(store_of(t), &e);
}

static bool
restore(tier *t, uint64_t oid, uint64_t tid, const char *state, size_t state_bytes,
        unsigned frequency)
{
    tempstore *s = store_of(t);
    entrant e = from_file(oid, tid, state, state_bytes, frequency);
    if (state_bytes > t->object_max_bytes) {
        return true; /* nothing to do, and no reason to stop */
    }
    bool has_room = tempstore_restore(s, &e) && s->fault == SQLITE_OK;
    settle(s);
    return has_room;
}

static void
end(tier *t, uint64_t oid, uint64_t tid, enum ending ending)
{
    tempstore_end(store_of(t), oid, tid, ending);
    settle(store_of(t));
}

static void
forget(tier *t, uint64_t oid)
{
    tempstore_forget(store_of(t), oid);
    settle(store_of(t));
}

static void
clear(tier *t)
{
    begin_anew(store_of(t));
}

static void
reserve(tier *t, size_t size_bytes)
{
    tempstore *s = store_of(t);
    s->reserved_bytes = size_bytes;
    room_make(s, 0, true);
    settle(s);
}

static void
take_unsaved(tier *t, uint64_t **oids, size_t *count)
{
    *oids = malloc(TAKEN_MAX * sizeof **oids);
    if (*oids != NULL) {
        saving_take(store_of(t), *oids, count);
        settle(store_of(t));
    }
}

static void
return_unsaved(tier *t, const uint64_t *oids, size_t count)
{
    saving_return(store_of(t), oids, count);
    settle(store_of(t));
}

static void
search_unsaved(tier *t)
{
    saving_search(store_of(t));
}

static size_t
pack(tier *t, const uint64_t *oids, size_t count, uint64_t through, size_t bytes_max, batch *found)
{
    size_t done = saving_pack(store_of(t), oids, count, through, bytes_max, found);
    settle(store_of(t));
    return done;
}

static void
mark_unsaved(tier *t)
{
    tempstore *s = store_of(t);
    s->epoch++;
    t->unsaved_bytes = s->current_bytes;
    saving_search(s);
}

static size_t
heated(tier *t, size_t *position, size_t slots, unsigned faded, revision_gain *gains)
{
    size_t count = saving_heated(store_of(t), position, slots, faded, gains);
    settle(store_of(t));
    return count;
}

static size_t
slots(const tier *t)
{
    return queue_entries((const tempstore *)t);
}

static void
measure(const tier *t, tier_sizes *sizes)
{
    tempstore *s = store_of((tier *)t);
    room_count_pages(s);
    *sizes = (tier_sizes){
        .entries = s->current_count + s->ended_count,
        .state_bytes = s->current_bytes + s->ended_bytes,
        .used_bytes = s->known_bytes + s->reserved_bytes,
        .probation_entries = s->queues[TEMP_PROBATION].count,
        .protected_entries = s->queues[TEMP_PROTECTED].count,
    };
    settle(s);
}

static void
close(tier *t)
{
    tempstore *s = store_of(t);
    tempdb_close(s);
    free(s->unsaved);
    free(s);
}

static const tier_kind KIND = {
    .close = close,
    .load_before = load_before,
    .load_at = load_at,
    .holds = holds,
    .recall = recall,
    .peek = peek,
    .release = release,
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
    .check = tempstore_check,
};

tier *
tempstore_make(const sqlite_api *api, size_t limit_bytes, size_t object_max_bytes)
{
    tempstore *s = calloc(1, sizeof *s);
    uint64_t *unsaved = malloc(UNSAVED_LISTED_MAX * sizeof *unsaved);
    if (s == NULL || unsaved == NULL) {
        free(s);
        free(unsaved);
        return NULL;
    }
    s->tier.kind = &KIND;
    s->tier.limit_bytes = s->room_bytes = limit_bytes;
    s->tier.object_max_bytes =
        (uint32_t)(object_max_bytes < BLOB_MAX_BYTES ? object_max_bytes : BLOB_MAX_BYTES);
    s->api = api;
    s->epoch = FIRST_EPOCH;
    s->unsaved = unsaved;
    begin_anew(s);
    return &s->tier;
}

void
tempstore_abandon(tempstore *s)
{
    memset(s->statements, 0, sizeof s->statements);
    s->db = NULL;
    begin_anew(s);
}
