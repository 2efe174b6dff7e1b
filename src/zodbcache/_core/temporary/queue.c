/* Who came when, and who was asked for since. */
#include <stdlib.h>
#include <string.h>

#include "tempstore.h"

/* place = line number * LINE_PLACES + entry; a segment's lines have every
 * TEMP_SEGMENTS-th number. */

/* So that a place takes four bytes in a row from the first one on, and a row does
 * not grow when it moves: that could split a page. */
enum { FIRST_LINE = (1 << 24) / LINE_PLACES };

static inline uint64_t
line_of(uint64_t place)
{
    return place / LINE_PLACES;
}

static void
begin_line(line *l, uint64_t number)
{
    l->number = number;
    l->filled = l->taken = 0;
    memset(l->heat, 0, sizeof l->heat);
}

void
queue_clear(tempstore *s)
{
    for (unsigned segment = 0; segment < TEMP_SEGMENTS; segment++) {
        queue *q = &s->queues[segment];
        begin_line(&q->last, FIRST_LINE + TEMP_SEGMENTS + segment);
        begin_line(&q->first, FIRST_LINE + segment); /* an empty one before it */
        q->stored = q->last.number;
        q->count = q->bytes = 0;
    }
    s->recent_count = 0;
    s->heat_number = 0;
    memset(s->seats, 0, sizeof s->seats);
}

static void
write_heat(tempstore *s, uint64_t number, const uint8_t *heat)
{
    int64_t binding = (int64_t)number;
    s->heat_number = 0;
    tempdb_run(s, TEMP_WRITE_HEAT, &binding, 1, heat, LINE_PLACES);
}

/* The last line is full: it goes to the database, and another begins. */
static void
store_last(tempstore *s, queue *q)
{
    int64_t binding = (int64_t)q->last.number;
    tempdb_run(s, TEMP_WRITE_LINE, &binding, 1, q->last.oids, sizeof q->last.oids);
    write_heat(s, q->last.number, q->last.heat);
    begin_line(&q->last, q->last.number + TEMP_SEGMENTS);
}

uint64_t
queue_append(tempstore *s, unsigned segment, uint64_t oid, uint8_t heat)
{
    line *l = &s->queues[segment].last;
    uint64_t place = l->number * LINE_PLACES + l->filled;
    l->oids[l->filled] = oid;
    l->heat[l->filled] = heat;
    if (++l->filled == LINE_PLACES) {
        store_last(s, &s->queues[segment]);
    }
    return place;
}

/* A blob of a row, if it is there and as long as it must be. */
static bool
read_blob(tempstore *s, enum temp_statement which, uint64_t number, void *blob, size_t blob_bytes)
{
    int64_t binding = (int64_t)number;
    sqlite3_stmt *statement = tempdb_start(s, which, &binding, 1);
    bool is_there = tempdb_step(s, statement);
    if (is_there) {
        is_there = (size_t)s->api->column_bytes(statement, 0) == blob_bytes;
        if (is_there) {
            memcpy(blob, s->api->column_blob(statement, 0), blob_bytes);
        }
        tempdb_reset(s, statement);
    }
    return is_there;
}

/* The next line becomes the first; false when there is none. */
static bool
fetch_first(tempstore *s, queue *q)
{
    queue_settle(s, true);
    if (q->stored == q->last.number) {
        if (q->last.filled == q->last.taken) {
            return false;
        }
        q->first = q->last;
        begin_line(&q->last, q->last.number + TEMP_SEGMENTS);
        q->stored = q->last.number;
        return true;
    }
    int64_t binding = (int64_t)q->stored;
    begin_line(&q->first, q->stored);
    bool is_there = read_blob(s, TEMP_READ_LINE, q->stored, q->first.oids, sizeof q->first.oids) &&
                    read_blob(s, TEMP_READ_HEAT, q->stored, q->first.heat, LINE_PLACES);
    tempdb_run(s, TEMP_DROP_LINE, &binding, 1, NULL, 0);
    tempdb_run(s, TEMP_DROP_HEAT, &binding, 1, NULL, 0);
    q->first.filled = is_there ? LINE_PLACES : 0;
    q->stored += TEMP_SEGMENTS;
    return is_there;
}

bool
queue_take(tempstore *s, unsigned segment, uint64_t *oid, uint64_t *place, uint8_t *heat)
{
    queue *q = &s->queues[segment];
    line *l = &q->first;
    if (l->taken == l->filled && !fetch_first(s, q)) {
        return false;
    }
    *oid = l->oids[l->taken];
    *heat = l->heat[l->taken];
    *place = l->number * LINE_PLACES + l->taken;
    l->taken++;
    return true;
}

void
queue_leave(tempstore *s, uint64_t oid, uint64_t place)
{
    s->seats[oid_hash(oid) % SEATS] = (seat){oid, place};
}

/* Whether the place has not been dealt with yet. */
static bool
is_waiting(const tempstore *s, uint64_t place)
{
    const queue *q = &s->queues[segment_of(place)];
    uint64_t number = line_of(place);
    return number >= q->stored ||
           (number == q->first.number && place % LINE_PLACES >= q->first.taken);
}

uint64_t
queue_return(tempstore *s, uint64_t oid)
{
    seat *left = &s->seats[oid_hash(oid) % SEATS];
    if (!left->place || left->oid != oid) {
        return 0;
    }
    uint64_t place = left->place;
    left->place = 0;
    return is_waiting(s, place) ? place : 0;
}

size_t
queue_entries(const tempstore *s)
{
    size_t entries = 0;
    for (unsigned segment = 0; segment < TEMP_SEGMENTS; segment++) {
        const queue *q = &s->queues[segment];
        entries += q->first.filled - q->first.taken + q->last.filled +
                   (q->last.number - q->stored) / TEMP_SEGMENTS * LINE_PLACES;
    }
    return entries;
}

/* The place's byte, if its line is in memory. */
static uint8_t *
heat_at_hand(tempstore *s, uint64_t place)
{
    queue *q = &s->queues[segment_of(place)];
    uint64_t number = line_of(place);
    line *l = number == q->last.number ? &q->last : number == q->first.number ? &q->first : NULL;
    return l == NULL ? NULL : &l->heat[place % LINE_PLACES];
}

static inline void
warm(uint8_t *heat)
{
    unsigned frequency = heat_frequency(*heat), hits = heat_hits(*heat);
    *heat = heat_of(frequency + (frequency < FREQUENCY_MAX), hits + (hits < FREQUENCY_MAX));
}

void
queue_note(tempstore *s, uint64_t place)
{
    uint8_t *heat = heat_at_hand(s, place);
    if (heat != NULL) {
        warm(heat);
    }
    else if (s->recent_count < RECENT_MAX) {
        s->recent[s->recent_count++] = place;
    }
}

static int
compare_places(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

void
queue_settle(tempstore *s, bool at_once)
{
    if (s->recent_count < RECENT_MAX && !(at_once && s->recent_count)) {
        return;
    }
    uint32_t count = s->recent_count;
    s->recent_count = 0;
    qsort(s->recent, count, sizeof *s->recent, compare_places);
    for (uint32_t i = 0; i < count;) {
        uint64_t number = line_of(s->recent[i]);
        uint8_t heat[LINE_PLACES];
        bool is_there = read_blob(s, TEMP_READ_HEAT, number, heat, sizeof heat);
        for (; i < count && line_of(s->recent[i]) == number; i++) {
            uint8_t *at_hand = heat_at_hand(s, s->recent[i]);
            if (at_hand != NULL) { /* it has become a segment's first line */
                warm(at_hand);
            }
            else if (is_there) {
                warm(&heat[s->recent[i] % LINE_PLACES]);
            }
        }
        if (is_there) {
            write_heat(s, number, heat);
        }
    }
}

uint8_t
queue_heat(tempstore *s, uint64_t place)
{
    queue_settle(s, true);
    const uint8_t *at_hand = heat_at_hand(s, place);
    if (at_hand != NULL) {
        return *at_hand;
    }
    if (s->heat_number != line_of(place)) {
        bool is_there = read_blob(s, TEMP_READ_HEAT, line_of(place), s->heat, sizeof s->heat);
        s->heat_number = is_there ? line_of(place) : 0;
    }
    return s->heat_number ? s->heat[place % LINE_PLACES] : 0;
}

/* The number of the segment's first line that is not before number; 0: none. */
static uint64_t
next_line(const queue *q, unsigned segment, uint64_t number)
{
    uint64_t begin = q->first.taken < q->first.filled ? q->first.number : q->stored;
    if (number <= begin) {
        return begin;
    }
    number += (TEMP_SEGMENTS + segment - number % TEMP_SEGMENTS) % TEMP_SEGMENTS;
    return number <= q->last.number ? number : 0;
}

bool
queue_next(tempstore *s, uint64_t *place, uint64_t *oid, uint8_t *heat)
{
    for (;;) {
        uint64_t number = 0;
        for (unsigned segment = 0; segment < TEMP_SEGMENTS; segment++) {
            uint64_t next = next_line(&s->queues[segment], segment, line_of(*place));
            number = next && (!number || next < number) ? next : number;
        }
        if (!number || s->fault != SQLITE_OK) {
            return false;
        }
        uint64_t begin = number * LINE_PLACES;
        *place = *place > begin ? *place : begin;
        queue *q = &s->queues[number % TEMP_SEGMENTS];
        uint32_t entry = *place % LINE_PLACES;
        const line *l = number == q->last.number    ? &q->last
                        : number == q->first.number ? &q->first
                                                    : NULL;
        if (l == NULL) {
            line found;
            if (read_blob(s, TEMP_READ_LINE, number, found.oids, sizeof found.oids)) {
                *oid = found.oids[entry];
                *heat = queue_heat(s, *place);
                return true;
            }
        }
        else if (entry < l->filled) {
            if (entry >= l->taken) {
                *oid = l->oids[entry];
                *heat = l->heat[entry];
                return true;
            }
            ++*place;
            continue;
        }
        *place = (number + 1) * LINE_PLACES;
    }
}
