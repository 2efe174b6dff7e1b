#include "tempstore.h"

#include <stdlib.h>
#include <string.h>

enum { PROTECTED_PERCENT = 80 };

/* How much is written before the pages are counted again: a share of the limit. */
enum { COUNT_SHARE = 64, COUNT_MIN_BYTES = 8 << 10, COUNT_MAX_BYTES = 1 << 20 };

/* So many are evicted before they are counted again. */
enum { EVICT_AT_ONCE = 32 };

/* Requests from which on a revision moves to protected, or stays there. */
enum { WARM = 2 };

/* A disk that is full, or fails, gets so much less from then on. */
enum { ROOM_PERCENT = 90 };

/* Rows that a search looks at before others may do something. */
enum { SEARCH_ROWS = 8192 };

/* Stale entries are dealt with when there are more than revisions, and so many. */
enum { STALE_MIN = 8 * LINE_PLACES, STALE_AT_ONCE = 8 };

/* marks: the epoch, the frequency that the file has heard of, and two flags. */
enum { MARK_SAVED = 1, MARK_RESTORED = 2, MARK_TOLD_SHIFT = 4, MARK_EPOCH_SHIFT = 8 };

static inline tempstore *
store_of(tier *t)
{
    return (tempstore *)t;
}

static inline int64_t
marks_of(const tempstore *s, bool saved, bool restored, unsigned told)
{
    return s->epoch << MARK_EPOCH_SHIFT | (int64_t)told << MARK_TOLD_SHIFT |
           (restored ? MARK_RESTORED : 0) | (saved ? MARK_SAVED : 0);
}

static inline bool
is_saved(const tempstore *s, int64_t marks)
{
    return (marks & MARK_SAVED) && marks >> MARK_EPOCH_SHIFT == s->epoch;
}

/* What is known of a revision without its state. */
typedef struct {
    uint64_t oid, tid, place;
    uint64_t end;  /* 0: open */
    bool bounded;  /* closed, and its successor came at its end or some time later */
    int64_t marks; /* of an open one */
    size_t state_bytes;
} row;

/* ---- faults ------------------------------------------------------------ */

static void
reset_counts(tempstore *s)
{
    queue_clear(s);
    s->known_bytes = s->added_bytes = 0;
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
    if (tempdb_open(s)) {
        s->known_bytes = tempdb_bytes(s);
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
    if (code == SQLITE_FULL || code == SQLITE_IOERR) {
        size_t room = (s->known_bytes + s->added_bytes) / 100 * ROOM_PERCENT;
        s->room_bytes = room < s->room_bytes ? room : s->room_bytes;
    }
    s->last_fault = s->fault;
    s->faults++;
    begin_anew(s);
}

/* ---- rows -------------------------------------------------------------- */

static size_t
row_bytes(size_t state_bytes)
{
    return state_bytes + ROW_BYTES;
}

static void
count_in(tempstore *s, const row *r)
{
    queue *q = &s->queues[segment_of(r->place)];
    q->count++;
    q->bytes += row_bytes(r->state_bytes);
}

static void
count_out(tempstore *s, const row *r)
{
    queue *q = &s->queues[segment_of(r->place)];
    q->count--;
    q->bytes -= row_bytes(r->state_bytes);
}

static bool
look(tempstore *s, uint64_t oid, row *r)
{
    int64_t binding = (int64_t)oid;
    sqlite3_stmt *statement = tempdb_start(s, TEMP_LOOK, &binding, 1);
    if (!tempdb_step(s, statement)) {
        return false;
    }
    *r = (row){
        .oid = oid,
        .tid = (uint64_t)s->api->column_int64(statement, 0),
        .place = (uint64_t)s->api->column_int64(statement, 1),
        .marks = s->api->column_int64(statement, 2),
        .state_bytes = (size_t)s->api->column_int64(statement, 3),
    };
    tempdb_reset(s, statement);
    return true;
}

/* The closed revisions of an oid; how many. */
static int
look_ended(tempstore *s, uint64_t oid, row rows[REVISIONS_MAX + 1])
{
    if (!s->ended_count) {
        return 0;
    }
    int64_t binding = (int64_t)oid;
    sqlite3_stmt *statement = tempdb_start(s, TEMP_LOOK_ENDED, &binding, 1);
    int count = 0;
    while (tempdb_step(s, statement)) {
        rows[count++] = (row){
            .oid = oid,
            .tid = (uint64_t)s->api->column_int64(statement, 0),
            .place = (uint64_t)s->api->column_int64(statement, 1),
            .end = (uint64_t)s->api->column_int64(statement, 2),
            .bounded = s->api->column_int64(statement, 3) != 0,
            .state_bytes = (size_t)s->api->column_int64(statement, 4),
        };
        if (count > REVISIONS_MAX) {
            tempdb_reset(s, statement);
            break;
        }
    }
    return count;
}

/* The revision that has this place; false if the entry is stale. */
static bool
look_at(tempstore *s, uint64_t oid, uint64_t place, row *r)
{
    if (look(s, oid, r) && r->place == place) {
        return true;
    }
    if (!s->ended_count) {
        return false;
    }
    int64_t binding = (int64_t)place;
    sqlite3_stmt *statement = tempdb_start(s, TEMP_LOOK_ENDED_AT, &binding, 1);
    if (!tempdb_step(s, statement)) {
        return false;
    }
    *r = (row){
        .oid = oid,
        .place = place,
        .end = UINT64_MAX,
        .state_bytes = (size_t)s->api->column_int64(statement, 0),
    };
    tempdb_reset(s, statement);
    return true;
}

static void
note_unsaved(tempstore *s, uint64_t oid)
{
    if (s->unsaved_count < UNSAVED_LISTED_MAX) {
        s->unsaved[s->unsaved_count++] = oid;
    }
    else {
        s->tier.unsaved_left = true;
        s->search_from = INT64_MIN;
    }
}

static void
drop(tempstore *s, const row *r)
{
    int64_t binding = (int64_t)(r->end ? r->place : r->oid);
    tempdb_run(s, r->end ? TEMP_DROP_ENDED : TEMP_DROP, &binding, 1, NULL, 0);
    count_out(s, r);
    if (r->end) {
        s->ended_count--;
        s->ended_bytes -= r->state_bytes;
        return;
    }
    s->current_count--;
    s->current_bytes -= r->state_bytes;
    if (!is_saved(s, r->marks)) {
        s->tier.unsaved_bytes -= r->state_bytes;
    }
}

/* The revision leaves its place for a new one at the end of a segment. */
static void
move_to(tempstore *s, row *r, unsigned segment, unsigned heat)
{
    count_out(s, r);
    uint64_t place = queue_append(s, segment, r->oid, heat);
    int64_t bindings[] = {(int64_t)(r->end ? r->place : r->oid), (int64_t)place};
    tempdb_run(s, r->end ? TEMP_MOVE_ENDED : TEMP_MOVE, bindings, 2, NULL, 0);
    r->place = place;
    count_in(s, r);
}

/* ---- room -------------------------------------------------------------- */

static size_t
budget(const tempstore *s)
{
    size_t limit = s->tier.limit_bytes < s->room_bytes ? s->tier.limit_bytes : s->room_bytes;
    return limit > s->reserved_bytes ? limit - s->reserved_bytes : 0;
}

static size_t
protected_target(const tempstore *s)
{
    return budget(s) / 100 * PROTECTED_PERCENT;
}

/* What protected holds too much goes back to probation, unless it was asked for
 * since it came. */
static void
demote_overflow(tempstore *s)
{
    uint64_t oid, place;
    unsigned heat;
    while (s->fault == SQLITE_OK && s->queues[TEMP_PROTECTED].bytes > protected_target(s) &&
           queue_take(s, TEMP_PROTECTED, &oid, &place, &heat)) {
        row r;
        if (look_at(s, oid, place, &r)) {
            bool stays = heat >= WARM;
            move_to(s, &r, stays ? TEMP_PROTECTED : TEMP_PROBATION, stays ? heat / 2 : 1);
        }
    }
}

static bool
evict_one(tempstore *s)
{
    uint64_t oid, place;
    unsigned heat;
    row r;
    while (s->fault == SQLITE_OK) {
        demote_overflow(s);
        if (!queue_take(s, TEMP_PROBATION, &oid, &place, &heat)) {
            if (!queue_take(s, TEMP_PROTECTED, &oid, &place, &heat)) {
                return false;
            }
            heat = 0;
        }
        if (!look_at(s, oid, place, &r)) {
            continue;
        }
        if (heat >= WARM) {
            move_to(s, &r, TEMP_PROTECTED, heat);
            continue;
        }
        drop(s, &r);
        s->tier.counters.evictions++;
        return true;
    }
    return false;
}

static size_t
count_share(const tempstore *s)
{
    size_t share = s->tier.limit_bytes / COUNT_SHARE;
    return share < COUNT_MIN_BYTES ? COUNT_MIN_BYTES
           : share > COUNT_MAX_BYTES ? COUNT_MAX_BYTES
                                     : share;
}

/* Count the pages in use when more may have come about than is known. */
static void
count_pages(tempstore *s)
{
    s->known_bytes = tempdb_bytes(s);
    s->added_bytes = 0;
}

/* What a state takes in pages, at most: its own ones if it is long. */
static size_t
pages_for(const tempstore *s, size_t state_bytes)
{
    size_t bytes = row_bytes(state_bytes);
    return bytes > s->page_bytes / 4 ? bytes + 2 * s->page_bytes : bytes;
}

/* Whether there is room for a state, evicting what it takes if that is allowed. */
static bool
make_room(tempstore *s, size_t state_bytes, bool may_evict)
{
    size_t wanted = pages_for(s, state_bytes) + count_share(s);
    if (s->known_bytes + s->added_bytes + wanted <= budget(s) && s->added_bytes < count_share(s)) {
        return true;
    }
    count_pages(s);
    while (s->fault == SQLITE_OK && s->known_bytes + wanted > budget(s)) {
        if (!may_evict) {
            return false;
        }
        for (int i = 0; i < EVICT_AT_ONCE; i++) {
            if (!evict_one(s)) {
                return false;
            }
        }
        count_pages(s);
    }
    return s->fault == SQLITE_OK;
}

/* Where objects change all the time and nothing is evicted, stale entries would
 * become ever more. */
static void
clear_stale(tempstore *s)
{
    size_t count = s->current_count + s->ended_count;
    if (queue_entries(s) <= 2 * count + STALE_MIN) {
        return;
    }
    for (unsigned segment = 0; segment < TEMP_SEGMENTS; segment++) {
        for (int i = 0; i < STALE_AT_ONCE; i++) {
            uint64_t oid, place;
            unsigned heat;
            row r;
            if (!queue_take(s, segment, &oid, &place, &heat)) {
                break;
            }
            if (look_at(s, oid, place, &r)) {
                move_to(s, &r, segment, heat);
            }
        }
    }
}

/* ---- looking up -------------------------------------------------------- */

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

/* The row that the statement is at; its state lasts until release(). */
static void
tell(tempstore *s, sqlite3_stmt *statement, uint64_t end, int state_column, held *found)
{
    found->tid = (uint64_t)s->api->column_int64(statement, 0);
    found->end = end;
    found->state = s->api->column_blob(statement, state_column);
    found->state_bytes = (size_t)s->api->column_bytes(statement, state_column);
    s->reading = statement;
}

/* What a look-up asks for, whatever the revision's state. */
typedef struct {
    uint64_t before, tid;
    bool end_wanted;
    bool exactly; /* just this tid, visible or not */
} wish;

static bool
is_wanted(const tempstore *s, const wish *w, uint64_t tid, uint64_t end, bool bounded)
{
    if (w->exactly) {
        return tid == w->tid;
    }
    return tid < w->before && (end ? w->before <= end && !(w->end_wanted && bounded)
                                   : w->before - 1 <= s->tier.checkpoint);
}

/* One look into current, and only if that does not do another into ended. */
static bool
find(tempstore *s, uint64_t oid, const wish *w, held *found, uint64_t *place, int64_t *marks)
{
    int64_t binding = (int64_t)oid;
    sqlite3_stmt *statement = tempdb_start(s, TEMP_READ, &binding, 1);
    if (tempdb_step(s, statement)) {
        if (is_wanted(s, w, (uint64_t)s->api->column_int64(statement, 0), 0, false)) {
            *place = (uint64_t)s->api->column_int64(statement, 1);
            *marks = s->api->column_int64(statement, 2);
            tell(s, statement, 0, 3, found);
            return true;
        }
        tempdb_reset(s, statement);
    }
    if (!s->ended_count) {
        return false;
    }
    statement = tempdb_start(s, TEMP_READ_ENDED, &binding, 1);
    while (tempdb_step(s, statement)) {
        uint64_t end = (uint64_t)s->api->column_int64(statement, 2);
        if (is_wanted(s, w, (uint64_t)s->api->column_int64(statement, 0), end,
                      s->api->column_int64(statement, 3) != 0)) {
            *place = (uint64_t)s->api->column_int64(statement, 1);
            *marks = 0;
            tell(s, statement, end, 4, found);
            return true;
        }
    }
    return false;
}

static bool
load(tempstore *s, uint64_t oid, const wish *w, held *found)
{
    uint64_t place;
    int64_t marks;
    queue_settle(s, false);
    if (!find(s, oid, w, found, &place, &marks)) {
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
    bool is_held = find(store_of(t), oid, &(wish){.before = at + 1}, &found, &place, &marks);
    release(t);
    return is_held;
}

static bool
recall(tier *t, uint64_t oid, uint64_t tid, held *found)
{
    uint64_t place;
    int64_t marks;
    bool is_held =
        find(store_of(t), oid, &(wish){.tid = tid, .exactly = true}, found, &place, &marks);
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
    if (!look(s, oid, &r)) {
        release(t);
        return false;
    }
    found->frequency = queue_heat(s, r.place);
    return recall(t, oid, r.tid, found);
}

/* ---- keeping ----------------------------------------------------------- */

/* Make place for one more closed revision of the oid: the oldest goes if there
 * are as many as there may be.  Return false when the new one is the oldest. */
static bool
bound_revisions(tempstore *s, uint64_t oid, uint64_t tid)
{
    row rows[REVISIONS_MAX + 1];
    int count = look_ended(s, oid, rows);
    if (count < REVISIONS_MAX) {
        return true;
    }
    const row *oldest = rows;
    for (const row *r = rows; r < rows + count; r++) {
        oldest = r->tid < oldest->tid ? r : oldest;
    }
    if (tid < oldest->tid) {
        return false;
    }
    drop(s, oldest);
    return true;
}

static void
close_at(tempstore *s, const row *r, uint64_t end, bool bounded)
{
    if (!bound_revisions(s, r->oid, r->tid)) {
        drop(s, r);
        return;
    }
    int64_t bindings[] = {(int64_t)r->oid, (int64_t)end, bounded};
    tempdb_run(s, TEMP_END, bindings, 3, NULL, 0);
    drop(s, r);
    row closed = *r;
    closed.end = end;
    s->ended_count++;
    s->ended_bytes += r->state_bytes;
    s->added_bytes += row_bytes(r->state_bytes);
    count_in(s, &closed);
}

enum verdict { NEW, NEWER, HELD, CONTRADICTED };

/* Compare with what is held of the oid, so that lives never overlap: an older
 * revision said to live on goes; a newer one wins.  NEWER: it takes the row of
 * *older, which was open. */
static enum verdict
reconcile(tempstore *s, uint64_t oid, uint64_t tid, uint64_t end, row *older)
{
    row rows[REVISIONS_MAX + 2];
    int count = look_ended(s, oid, rows);
    if (look(s, oid, &rows[count])) {
        count++;
    }
    enum verdict verdict = NEW;
    for (const row *r = rows; r < rows + count; r++) {
        if (r->tid == tid) {
            if (end && !r->end) {
                close_at(s, r, end, false);
            }
            else if (end && r->bounded && end >= r->end) {
                int64_t bindings[] = {(int64_t)r->place, (int64_t)end};
                tempdb_run(s, TEMP_END_ENDED, bindings, 2, NULL, 0);
            }
            return HELD;
        }
        if (r->tid > tid && (!end || end > r->tid)) {
            return CONTRADICTED;
        }
        if (r->tid < tid && !r->end && !end) {
            *older = *r;
            verdict = NEWER;
        }
        else if (r->tid < tid && (!r->end || r->end > tid)) {
            drop(s, r);
        }
    }
    return verdict;
}

/* What is to be kept. */
typedef struct {
    uint64_t oid, tid, end;
    const char *state;
    size_t state_bytes;
    bool restored; /* the file has it */
    unsigned told; /* and the frequency that it knows */
    unsigned heat;
} entrant;

static void
note_entered(tempstore *s, const entrant *e)
{
    s->tier.counters.sets += !e->restored;
    s->current_count++;
    s->current_bytes += e->state_bytes;
    s->added_bytes += row_bytes(e->state_bytes);
    if (!e->restored) {
        s->tier.unsaved_bytes += e->state_bytes;
        note_unsaved(s, e->oid);
    }
}

/* A new row in current; false if there is one of the oid. */
static bool
add(tempstore *s, const entrant *e, unsigned segment)
{
    line *last = &s->queues[segment].last;
    uint64_t place = last->number * LINE_PLACES + last->filled;
    int64_t bindings[] = {(int64_t)e->oid, (int64_t)e->tid, (int64_t)place,
                          marks_of(s, e->restored, e->restored, e->told)};
    if (!tempdb_run(s, TEMP_ADD, bindings, 4, e->state_bytes ? e->state : "", e->state_bytes)) {
        return false;
    }
    queue_append(s, segment, e->oid, e->heat);
    count_in(s, &(row){.place = place, .state_bytes = e->state_bytes});
    note_entered(s, e);
    return true;
}

/* In the row, and at the place, of an older one. */
static void
replace(tempstore *s, const entrant *e, const row *older)
{
    int64_t bindings[] = {(int64_t)e->oid, (int64_t)e->tid,
                          marks_of(s, e->restored, e->restored, e->told)};
    tempdb_run(s, TEMP_REPLACE, bindings, 3, e->state_bytes ? e->state : "", e->state_bytes);
    count_out(s, older);
    s->current_count--;
    s->current_bytes -= older->state_bytes;
    if (!is_saved(s, older->marks)) {
        s->tier.unsaved_bytes -= older->state_bytes;
    }
    count_in(s, &(row){.place = older->place, .state_bytes = e->state_bytes});
    note_entered(s, e);
    queue_note(s, older->place);
}

static bool
add_ended(tempstore *s, const entrant *e)
{
    uint64_t place = queue_append(s, TEMP_PROBATION, e->oid, e->heat);
    int64_t bindings[] = {(int64_t)place, (int64_t)e->oid, (int64_t)e->tid, (int64_t)e->end, 0};
    tempdb_run(s, TEMP_ADD_ENDED, bindings, 5, e->state_bytes ? e->state : "", e->state_bytes);
    s->tier.counters.sets++;
    s->ended_count++;
    s->ended_bytes += e->state_bytes;
    s->added_bytes += row_bytes(e->state_bytes);
    count_in(s, &(row){.place = place, .state_bytes = e->state_bytes});
    return s->fault == SQLITE_OK;
}

/* Whether it is held afterwards. */
static bool
keep(tempstore *s, const entrant *e)
{
    if (e->state_bytes > s->tier.object_max_bytes || (e->end && e->end <= e->tid) ||
        s->db == NULL || !make_room(s, e->state_bytes, true)) {
        return false;
    }
    queue_settle(s, false);
    clear_stale(s);
    if (!e->end && !s->ended_count && add(s, e, TEMP_PROBATION)) {
        return true;
    }
    row older;
    switch (reconcile(s, e->oid, e->tid, e->end, &older)) {
    case HELD:
        return true;
    case CONTRADICTED:
        return false;
    case NEWER:
        replace(s, e, &older);
        return s->fault == SQLITE_OK;
    case NEW:
        break;
    }
    return e->end ? bound_revisions(s, e->oid, e->tid) && add_ended(s, e)
                  : add(s, e, TEMP_PROBATION);
}

static bool
insert(tier *t, uint64_t oid, uint64_t tid, uint64_t end, const char *state, size_t state_bytes)
{
    tempstore *s = store_of(t);
    bool is_kept = keep(s, &(entrant){.oid = oid,
                                      .tid = tid,
                                      .end = end,
                                      .state = state,
                                      .state_bytes = state_bytes,
                                      .heat = 1});
    is_kept = is_kept && s->fault == SQLITE_OK;
    settle(s);
    return is_kept;
}

static bool
promote(tier *t, uint64_t oid, uint64_t tid, const char *state, size_t state_bytes,
        unsigned frequency)
{
    tempstore *s = store_of(t);
    frequency = frequency < FREQUENCY_MAX ? frequency : FREQUENCY_MAX;
    bool is_kept = keep(s, &(entrant){.oid = oid,
                                      .tid = tid,
                                      .state = state,
                                      .state_bytes = state_bytes,
                                      .restored = true,
                                      .told = frequency,
                                      .heat = frequency + 1});
    is_kept = is_kept && s->fault == SQLITE_OK;
    settle(s);
    return is_kept;
}

static bool
restore(tier *t, uint64_t oid, uint64_t tid, const char *state, size_t state_bytes,
        unsigned frequency)
{
    tempstore *s = store_of(t);
    row older;
    if (s->db == NULL) {
        return false;
    }
    if (state_bytes > t->object_max_bytes) {
        return true; /* nothing to do, and no reason to stop */
    }
    if (!make_room(s, state_bytes, false)) {
        settle(s);
        return false;
    }
    frequency = frequency < FREQUENCY_MAX ? frequency : FREQUENCY_MAX;
    entrant e = {.oid = oid,
                 .tid = tid,
                 .state = state,
                 .state_bytes = state_bytes,
                 .restored = true,
                 .told = frequency,
                 .heat = frequency};
    bool is_hot = frequency >= WARM &&
                  s->queues[TEMP_PROTECTED].bytes + row_bytes(state_bytes) <= protected_target(s);
    unsigned segment = is_hot ? TEMP_PROTECTED : TEMP_PROBATION;
    if (s->ended_count || !add(s, &e, segment)) {
        switch (reconcile(s, oid, tid, 0, &older)) {
        case NEWER:
            replace(s, &e, &older);
            break;
        case NEW:
            add(s, &e, segment);
            break;
        case HELD:
        case CONTRADICTED:
            break;
        }
    }
    settle(s);
    return true;
}

static void
end(tier *t, uint64_t oid, uint64_t tid, enum ending ending)
{
    tempstore *s = store_of(t);
    row r;
    if (look(s, oid, &r) && r.tid < tid) {
        if (ending == ENDED_EXACTLY) {
            close_at(s, &r, tid, false);
        }
        else if (ending == ENDED_LATER && r.tid <= t->checkpoint && t->checkpoint < tid) {
            close_at(s, &r, t->checkpoint + 1, true);
        }
        else {
            drop(s, &r);
        }
        make_room(s, 0, true);
    }
    settle(s);
}

static void
forget(tier *t, uint64_t oid)
{
    tempstore *s = store_of(t);
    row rows[REVISIONS_MAX + 1], r;
    int count = look_ended(s, oid, rows);
    while (count-- > 0) {
        drop(s, &rows[count]);
    }
    if (look(s, oid, &r)) {
        drop(s, &r);
    }
    settle(s);
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
    make_room(s, 0, true);
    settle(s);
}

/* ---- what the file lacks ----------------------------------------------- */

/* More of them, from where the search is. */
static void
search(tempstore *s, uint64_t *oids, size_t *count)
{
    int64_t bindings[] = {s->search_from, SEARCH_ROWS};
    sqlite3_stmt *statement = tempdb_start(s, TEMP_SEARCH, bindings, 2);
    int64_t seen = 0, oid = 0;
    while (tempdb_step(s, statement)) {
        oid = s->api->column_int64(statement, 0);
        if (!is_saved(s, s->api->column_int64(statement, 1))) {
            oids[(*count)++] = (uint64_t)oid;
        }
        seen++;
    }
    s->tier.unsaved_left = seen == SEARCH_ROWS && oid < INT64_MAX;
    s->search_from = s->tier.unsaved_left ? oid + 1 : 0;
}

static void
take_unsaved(tier *t, uint64_t **oids, size_t *count)
{
    tempstore *s = store_of(t);
    *count = 0;
    *oids = malloc((UNSAVED_LISTED_MAX + SEARCH_ROWS) * sizeof **oids);
    if (*oids == NULL) {
        return;
    }
    if (s->tier.unsaved_left) {
        search(s, *oids, count);
    }
    memcpy(*oids + *count, s->unsaved, s->unsaved_count * sizeof **oids);
    *count += s->unsaved_count;
    s->unsaved_count = 0;
    settle(s);
}

static void
search_unsaved(tier *t)
{
    tempstore *s = store_of(t);
    s->tier.unsaved_left = true;
    s->search_from = INT64_MIN;
}

static void
mark(tempstore *s, const row *r, int64_t marks)
{
    int64_t bindings[] = {(int64_t)r->oid, marks};
    tempdb_run(s, TEMP_MARK, bindings, 2, NULL, 0);
}

static void
return_unsaved(tier *t, const uint64_t *oids, size_t count)
{
    tempstore *s = store_of(t);
    for (size_t i = 0; i < count && s->fault == SQLITE_OK; i++) {
        row r;
        if (!look(s, oids[i], &r)) {
            continue;
        }
        if (is_saved(s, r.marks)) {
            mark(s, &r, r.marks & ~(int64_t)MARK_SAVED);
            t->unsaved_bytes += r.state_bytes;
        }
        note_unsaved(s, r.oid);
    }
    settle(s);
}

/* Whether there was memory for it. */
static bool
pack_one(tempstore *s, uint64_t oid, uint64_t through, batch *found)
{
    row r;
    held state;
    if (!look(s, oid, &r) || is_saved(s, r.marks)) {
        return true;
    }
    if (r.tid > through) { /* I1 */
        note_unsaved(s, oid);
        return true;
    }
    unsigned heat = queue_heat(s, r.place);
    uint64_t place;
    int64_t marks;
    if (!find(s, oid, &(wish){.tid = r.tid, .exactly = true}, &state, &place, &marks)) {
        return true;
    }
    bool has_memory = batch_add(found, oid, r.tid, heat, state.state, state.state_bytes);
    tempdb_reset(s, s->reading);
    s->reading = NULL;
    if (has_memory) {
        mark(s, &r, marks_of(s, true, marks & MARK_RESTORED, heat));
        s->tier.unsaved_bytes -= r.state_bytes;
    }
    return has_memory;
}

static size_t
pack(tier *t, const uint64_t *oids, size_t count, uint64_t through, size_t bytes_max, batch *found)
{
    tempstore *s = store_of(t);
    size_t done = 0;
    for (; done < count && found->states_bytes < bytes_max; done++) {
        if (!pack_one(s, oids[done], through, found)) {
            break;
        }
    }
    settle(s);
    return done;
}

static void
mark_unsaved(tier *t)
{
    tempstore *s = store_of(t);
    s->epoch++;
    t->unsaved_bytes = s->current_bytes;
    search_unsaved(t);
}

static size_t
heated(tier *t, size_t *position, size_t slots, unsigned faded, revision_gain *gains)
{
    tempstore *s = store_of(t);
    uint64_t place = *position, oid;
    size_t count = 0;
    unsigned heat;
    for (; slots > 0 && queue_next(s, &place, &oid, &heat); slots--, place++) {
        row r;
        if (!heat || !look(s, oid, &r) || r.place != place || !is_saved(s, r.marks)) {
            continue;
        }
        unsigned known = r.marks >> MARK_TOLD_SHIFT & FREQUENCY_MAX;
        unsigned told = known > faded ? known - faded : 0;
        if (heat > 2 * told) {
            gains[count++] = (revision_gain){oid, r.tid, heat - told};
        }
        if (heat > 2 * told || heat < told) {
            mark(s, &r, marks_of(s, true, r.marks & MARK_RESTORED, heat));
        }
    }
    *position = slots ? 0 : (size_t)place;
    settle(s);
    return count;
}

static size_t
slots(const tier *t)
{
    return queue_entries((const tempstore *)t);
}

/* ---- the whole --------------------------------------------------------- */

static void
measure(const tier *t, tier_sizes *sizes)
{
    tempstore *s = store_of((tier *)t);
    count_pages(s);
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
    s->tier.object_max_bytes = (uint32_t)(object_max_bytes < UINT32_MAX ? object_max_bytes
                                                                        : UINT32_MAX);
    s->api = api;
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
