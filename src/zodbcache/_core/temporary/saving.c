/* What the file lacks of what the temporary database holds. */
#include <string.h>

#include "tempstore.h"

void
saving_note(tempstore *s, uint64_t oid)
{
    if (s->unsaved_count < UNSAVED_LISTED_MAX) {
        s->unsaved[s->unsaved_count++] = oid;
    }
    else {
        saving_search(s);
    }
}

void
saving_search(tempstore *s)
{
    s->tier.unsaved_left = true;
    s->search_from = INT64_MIN;
}

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

void
saving_take(tempstore *s, uint64_t *oids, size_t *count)
{
    *count = 0;
    if (s->tier.unsaved_left) {
        search(s, oids, count);
    }
    memcpy(oids + *count, s->unsaved, s->unsaved_count * sizeof *oids);
    *count += s->unsaved_count;
    s->unsaved_count = 0;
}

void
saving_return(tempstore *s, const uint64_t *oids, size_t count)
{
    for (size_t i = 0; i < count && s->fault == SQLITE_OK; i++) {
        row r;
        if (!row_look(s, oids[i], &r)) {
            continue;
        }
        if (is_saved(s, r.marks)) {
            row_mark(s, &r, r.marks & ~(int64_t)MARK_SAVED);
            s->tier.unsaved_bytes += r.state_bytes;
        }
        saving_note(s, r.oid);
    }
}

/* Whether there was memory for it. */
static bool
pack_one(tempstore *s, uint64_t oid, uint64_t through, batch *found)
{
    int64_t binding = (int64_t)oid;
    sqlite3_stmt *statement = tempdb_start(s, TEMP_READ, &binding, 1);
    if (!tempdb_step(s, statement)) {
        return true;
    }
    uint64_t tid = (uint64_t)s->api->column_int64(statement, 0);
    uint64_t place = (uint64_t)s->api->column_int64(statement, 1);
    int64_t marks = s->api->column_int64(statement, 2);
    bool has_memory = true, is_packed = false;
    if (!is_saved(s, marks) && tid > through) { /* I1 */
        saving_note(s, oid);
    }
    else if (!is_saved(s, marks)) {
        const void *state = s->api->column_blob(statement, 4);
        size_t state_bytes = (size_t)s->api->column_bytes(statement, 4);
        if (s->api->column_int64(statement, 3) != row_sum(oid, tid, state, state_bytes)) {
            tempdb_note(s, SQLITE_CORRUPT);
        }
        else {
            is_packed = has_memory = batch_add(found, oid, tid, 0, state, state_bytes);
        }
    }
    tempdb_reset(s, statement);
    if (is_packed) {
        batch_row *row = &found->rows[found->count - 1];
        row->frequency = heat_frequency(queue_heat(s, place));
        int64_t bindings[] = {binding, marks_of(s, true, marks & MARK_RESTORED,
                                                (unsigned)row->frequency)};
        tempdb_run(s, TEMP_MARK, bindings, 2, NULL, 0);
        s->tier.unsaved_bytes -= row->state_bytes;
    }
    return has_memory;
}

size_t
saving_pack(tempstore *s, const uint64_t *oids, size_t count, uint64_t through, size_t bytes_max,
            batch *found)
{
    size_t done = 0;
    while (done < count && found->states_bytes < bytes_max &&
           pack_one(s, oids[done], through, found)) {
        done++;
    }
    return done;
}

size_t
saving_heated(tempstore *s, size_t *position, size_t slots, unsigned faded, revision_gain *gains)
{
    uint64_t place = *position, oid;
    size_t count = 0;
    uint8_t heat;
    for (; slots > 0 && queue_next(s, &place, &oid, &heat); slots--, place++) {
        row r;
        unsigned frequency = heat_frequency(heat);
        if (!frequency || !row_look(s, oid, &r) || r.place != place || !is_saved(s, r.marks)) {
            continue;
        }
        unsigned known = r.marks >> MARK_TOLD_SHIFT & FREQUENCY_MAX;
        unsigned told = known > faded ? known - faded : 0;
        if (frequency > 2 * told) {
            gains[count++] = (revision_gain){oid, r.tid, frequency - told};
        }
        if (frequency > 2 * told || frequency < told) {
            row_mark(s, &r, marks_of(s, true, r.marks & MARK_RESTORED, frequency));
        }
    }
    *position = queue_next(s, &place, &oid, &heat) ? (size_t)place : 0;
    return count;
}
