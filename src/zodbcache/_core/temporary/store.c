#include "tempstore.h"

/* The row that the statement is at, its last columns the sum and the state; that
 * lasts until s->reading is reset.  False, and a fault, if they do not fit. */
static bool
tell(tempstore *s, sqlite3_stmt *statement, uint64_t oid, uint64_t end, int sum_column,
     held *found)
{
    found->tid = (uint64_t)s->api->column_int64(statement, 0);
    found->end = end;
    found->state = s->api->column_blob(statement, sum_column + 1);
    found->state_bytes = (size_t)s->api->column_bytes(statement, sum_column + 1);
    if (s->api->column_int64(statement, sum_column) !=
        row_sum(oid, found->tid, found->state, found->state_bytes)) {
        tempdb_note(s, SQLITE_CORRUPT);
        tempdb_reset(s, statement);
        return false;
    }
    s->reading = statement;
    return true;
}

static bool
is_wanted(const tempstore *s, const wish *w, uint64_t tid, uint64_t end, bool bounded)
{
    if (w->exactly) {
        return tid == w->tid;
    }
    return tid < w->before && (end ? w->before <= end && !(w->end_wanted && bounded)
                                   : w->before - 1 <= s->tier.checkpoint);
}

bool
tempstore_find(tempstore *s, uint64_t oid, const wish *w, held *found, uint64_t *place,
               int64_t *marks)
{
    int64_t binding = (int64_t)oid;
    sqlite3_stmt *statement = tempdb_start(s, TEMP_READ, &binding, 1);
    if (tempdb_step(s, statement)) {
        if (is_wanted(s, w, (uint64_t)s->api->column_int64(statement, 0), 0, false)) {
            *place = (uint64_t)s->api->column_int64(statement, 1);
            *marks = s->api->column_int64(statement, 2);
            return tell(s, statement, oid, 0, 3, found);
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
            return tell(s, statement, oid, end, 4, found);
        }
    }
    return false;
}

/* Make place for one more closed revision of the oid: the oldest goes if there
 * are as many as there may be.  Return false when the new one is the oldest. */
static bool
bound_revisions(tempstore *s, uint64_t oid, uint64_t tid)
{
    row rows[REVISIONS_MAX + 1];
    int count = row_look_ended(s, oid, rows);
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
    row_drop(s, oldest);
    return true;
}

static void
close_at(tempstore *s, const row *r, uint64_t end, bool bounded)
{
    if (!bound_revisions(s, r->oid, r->tid)) {
        row_drop(s, r);
        return;
    }
    row closed = *r;
    closed.end = end;
    closed.place = queue_append(s, TEMP_PROBATION, r->oid, 0);
    int64_t bindings[] = {(int64_t)r->oid, (int64_t)closed.place, (int64_t)end, bounded};
    tempdb_run(s, TEMP_END, bindings, 4, NULL, 0);
    row_drop(s, r);
    s->ended_count++;
    s->ended_bytes += r->state_bytes;
    row_count_added(s, r->state_bytes);
    row_count_in(s, &closed);
}

enum verdict { NEW, NEWER, HELD, CONTRADICTED };

/* Compare with what is held of the oid, so that lives never overlap: an older
 * revision said to live on goes; a newer one wins.  NEWER: it takes the row of
 * *older, which was open. */
static enum verdict
reconcile(tempstore *s, uint64_t oid, uint64_t tid, uint64_t end, row *older)
{
    row rows[REVISIONS_MAX + 2];
    int count = row_look_ended(s, oid, rows);
    if (row_look(s, oid, &rows[count])) {
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
            row_drop(s, r);
        }
    }
    return verdict;
}

static void
note_entered(tempstore *s, const entrant *e)
{
    s->tier.counters.sets += !e->restored;
    s->current_count++;
    s->current_bytes += e->state_bytes;
    row_count_added(s, e->state_bytes);
    if (!e->restored) {
        s->tier.unsaved_bytes += e->state_bytes;
        saving_note(s, e->oid);
    }
}

/* A new row in current; false if there is one of the oid. */
static bool
add(tempstore *s, const entrant *e, unsigned segment)
{
    const line *last = &s->queues[segment].last;
    uint64_t before = queue_return(s, e->oid);
    uint64_t place = before ? before : last->number * LINE_PLACES + last->filled;
    int64_t bindings[] = {(int64_t)e->oid, (int64_t)e->tid, (int64_t)place,
                          marks_of(s, e->restored, e->restored, e->told),
                          row_sum(e->oid, e->tid, e->state, e->state_bytes)};
    if (!tempdb_run(s, TEMP_ADD, bindings, 5, e->state_bytes ? e->state : "", e->state_bytes)) {
        return false;
    }
    if (before) {
        queue_note(s, place);
    }
    else {
        queue_append(s, segment, e->oid, e->heat);
    }
    row_count_in(s, &(row){.place = place, .state_bytes = e->state_bytes});
    note_entered(s, e);
    return true;
}

/* In the row, and at the place, of an older one. */
static void
replace(tempstore *s, const entrant *e, const row *older)
{
    int64_t bindings[] = {(int64_t)e->oid, (int64_t)e->tid,
                          marks_of(s, e->restored, e->restored, e->told),
                          row_sum(e->oid, e->tid, e->state, e->state_bytes)};
    tempdb_run(s, TEMP_REPLACE, bindings, 4, e->state_bytes ? e->state : "", e->state_bytes);
    row_count_out(s, older);
    s->current_count--;
    s->current_bytes -= older->state_bytes;
    if (!is_saved(s, older->marks)) {
        s->tier.unsaved_bytes -= older->state_bytes;
    }
    row_count_in(s, &(row){.place = older->place, .state_bytes = e->state_bytes});
    note_entered(s, e);
    queue_note(s, older->place);
}

static bool
add_ended(tempstore *s, const entrant *e)
{
    uint64_t place = queue_append(s, TEMP_PROBATION, e->oid, e->heat);
    int64_t bindings[] = {(int64_t)place,  (int64_t)e->oid, (int64_t)e->tid,
                          (int64_t)e->end, 0,               row_sum(e->oid, e->tid, e->state,
                                                                    e->state_bytes)};
    tempdb_run(s, TEMP_ADD_ENDED, bindings, 6, e->state_bytes ? e->state : "", e->state_bytes);
    s->tier.counters.sets++;
    s->ended_count++;
    s->ended_bytes += e->state_bytes;
    row_count_added(s, e->state_bytes);
    row_count_in(s, &(row){.place = place, .state_bytes = e->state_bytes});
    return s->fault == SQLITE_OK;
}

bool
tempstore_keep(tempstore *s, const entrant *e)
{
    if (e->state_bytes > s->tier.object_max_bytes || (e->end && e->end <= e->tid) ||
        s->db == NULL || !room_make(s, e->state_bytes, true)) {
        return false;
    }
    queue_settle(s, false);
    room_clear_stale(s);
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

bool
tempstore_restore(tempstore *s, const entrant *e)
{
    row older;
    if (s->db == NULL || !room_make(s, e->state_bytes, false)) {
        return false;
    }
    queue_settle(s, false);
    room_clear_stale(s);
    bool is_hot = e->told > 1 && s->queues[TEMP_PROTECTED].bytes + row_bytes(e->state_bytes) <=
                                         room_protected_target(s);
    unsigned segment = is_hot ? TEMP_PROTECTED : TEMP_PROBATION;
    if (!s->ended_count && add(s, e, segment)) {
        return true;
    }
    switch (reconcile(s, e->oid, e->tid, 0, &older)) {
    case NEWER:
        replace(s, e, &older);
        break;
    case NEW:
        add(s, e, segment);
        break;
    case HELD:
    case CONTRADICTED:
        break;
    }
    return true;
}

void
tempstore_end(tempstore *s, uint64_t oid, uint64_t tid, enum ending ending)
{
    row r;
    if (!row_look(s, oid, &r) || r.tid >= tid) {
        return;
    }
    uint64_t checkpoint = s->tier.checkpoint;
    if (ending == ENDED_EXACTLY) {
        close_at(s, &r, tid, false);
    }
    else if (ending == ENDED_LATER && r.tid <= checkpoint && checkpoint < tid) {
        close_at(s, &r, checkpoint + 1, true);
    }
    else {
        row_drop(s, &r);
    }
    room_make(s, 0, true);
}

void
tempstore_forget(tempstore *s, uint64_t oid)
{
    row rows[REVISIONS_MAX + 1], r;
    int count = row_look_ended(s, oid, rows);
    while (count-- > 0) {
        row_drop(s, &rows[count]);
    }
    if (row_look(s, oid, &r)) {
        row_drop(s, &r);
    }
}
