#include <string.h>

#include "pagesum.h"
#include "tempstore.h"

int64_t
row_sum(uint64_t oid, uint64_t tid, const void *state, size_t state_bytes)
{
    size_t words_bytes = state_bytes - state_bytes % sizeof(uint32_t);
    uint32_t tail = (uint32_t)state_bytes;
    for (size_t i = words_bytes; i < state_bytes; i++) {
        tail = tail << 8 ^ ((const unsigned char *)state)[i];
    }
    uint64_t sum = pagesum_of(state, words_bytes);
    return (int64_t)(oid_hash(oid_hash(oid_hash(sum + tail) ^ oid) ^ tid) >> 33);
}

void
row_count_in(tempstore *s, const row *r)
{
    queue *q = &s->queues[segment_of(r->place)];
    q->count++;
    q->bytes += row_bytes(r->state_bytes);
}

void
row_count_out(tempstore *s, const row *r)
{
    queue *q = &s->queues[segment_of(r->place)];
    q->count--;
    q->bytes -= row_bytes(r->state_bytes);
}

bool
row_look(tempstore *s, uint64_t oid, row *r)
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

int
row_look_ended(tempstore *s, uint64_t oid, row rows[REVISIONS_MAX + 1])
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

bool
row_look_at(tempstore *s, uint64_t oid, uint64_t place, row *r)
{
    if (row_look(s, oid, r) && r->place == place) {
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

void
row_drop(tempstore *s, const row *r)
{
    int64_t binding = (int64_t)(r->end ? r->place : r->oid);
    tempdb_run(s, r->end ? TEMP_DROP_ENDED : TEMP_DROP, &binding, 1, NULL, 0);
    row_count_out(s, r);
    if (r->end) {
        s->ended_count--;
        s->ended_bytes -= r->state_bytes;
        return;
    }
    queue_leave(s, r->oid, r->place);
    s->current_count--;
    s->current_bytes -= r->state_bytes;
    if (!is_saved(s, r->marks)) {
        s->tier.unsaved_bytes -= r->state_bytes;
    }
}

void
row_move(tempstore *s, row *r, unsigned segment, uint8_t heat)
{
    row_count_out(s, r);
    uint64_t place = queue_append(s, segment, r->oid, heat);
    int64_t bindings[] = {(int64_t)(r->end ? r->place : r->oid), (int64_t)place};
    tempdb_run(s, r->end ? TEMP_MOVE_ENDED : TEMP_MOVE, bindings, 2, NULL, 0);
    r->place = place;
    row_count_in(s, r);
}

void
row_mark(tempstore *s, const row *r, int64_t marks)
{
    int64_t bindings[] = {(int64_t)r->oid, marks};
    tempdb_run(s, TEMP_MARK, bindings, 2, NULL, 0);
}
