/* Asks the temporary database whether every invariant holds. */
#include <inttypes.h>
#include <stdio.h>

#include "tempstore.h"

typedef struct {
    const char *sql;
    int64_t expected;
    const char *wrong;
} question;

static const char *
check_rows(tempstore *s)
{
    char unsaved[200];
    snprintf(unsaved, sizeof unsaved,
             "SELECT ifnull(sum(octet_length(state)), 0) FROM current"
             " WHERE NOT (marks & 1) OR marks >> 8 != %" PRId64,
             s->epoch);
    const question questions[] = {
        {"SELECT count(*) FROM current", (int64_t)s->current_count, "I5: rows are miscounted"},
        {"SELECT count(*) FROM ended", (int64_t)s->ended_count, "I5: rows are miscounted"},
        {"SELECT ifnull(sum(octet_length(state)), 0) FROM current", (int64_t)s->current_bytes,
         "I5: state bytes are miscounted"},
        {"SELECT ifnull(sum(octet_length(state)), 0) FROM ended", (int64_t)s->ended_bytes,
         "I5: state bytes are miscounted"},
        {unsaved, (int64_t)s->tier.unsaved_bytes, "the bytes that the file lacks are miscounted"},
        {"SELECT count(*) FROM ended WHERE end <= tid", 0,
         "I1: a revision ends before it begins"},
        {"SELECT count(*) FROM ended JOIN current USING (oid) WHERE ended.end > current.tid", 0,
         "I1: two revisions of one oid overlap in time"},
        {"SELECT count(*) FROM ended AS one JOIN ended AS other USING (oid)"
         " WHERE one.tid < other.tid AND one.end > other.tid",
         0, "I1: two revisions of one oid overlap in time"},
        {"SELECT count(*) FROM (SELECT oid FROM ended GROUP BY oid, tid HAVING count(*) > 1)", 0,
         "I1: two revisions of one oid have the same tid"},
        {"SELECT count(*) FROM (SELECT oid FROM ended GROUP BY oid HAVING count(*) > 8)", 0,
         "an oid has too many closed revisions"},
        {"SELECT (SELECT count(*) FROM current WHERE place / 512 % 2 = 1)"
         " + (SELECT count(*) FROM ended WHERE place / 512 % 2 = 1)",
         (int64_t)s->queues[TEMP_PROTECTED].count, "I5: a segment's revisions are miscounted"},
    };
    for (const question *q = questions; q < questions + sizeof questions / sizeof *questions;
         q++) {
        if (!tempdb_gives(s, q->sql, q->expected)) {
            return q->wrong;
        }
    }
    return NULL;
}

static_assert(LINE_PLACES == 512 && TEMP_SEGMENTS == 2 && REVISIONS_MAX == 8, "as the SQL says");

static const char *
check_entries(tempstore *s)
{
    char sql[256];
    uint64_t place = 0, oid;
    size_t entries = 0, revisions = 0;
    uint8_t heat;
    for (; queue_next(s, &place, &oid, &heat); place++) {
        snprintf(sql, sizeof sql,
                 "SELECT count(*) FROM (SELECT oid, place FROM current WHERE oid = %" PRId64
                 " UNION ALL SELECT oid, place FROM ended WHERE place = %" PRId64
                 ") WHERE place = %" PRId64 " AND oid = %" PRId64,
                 (int64_t)oid, (int64_t)place, (int64_t)place, (int64_t)oid);
        revisions += tempdb_gives(s, sql, 1);
        entries++;
    }
    if (entries != queue_entries(s)) {
        return "the entries of the lines are miscounted";
    }
    return revisions == s->current_count + s->ended_count ? NULL : "a revision has no place";
}

const char *
tempstore_check(tier *t)
{
    tempstore *s = (tempstore *)t;
    if (s->db == NULL) {
        return NULL;
    }
    if (!tempdb_is_intact(s)) {
        return "SQLite finds the temporary database malformed";
    }
    const char *wrong = check_rows(s);
    wrong = wrong ? wrong : check_entries(s);
    if (wrong) {
        return wrong;
    }
    bool is_over = tempdb_bytes(s) + s->reserved_bytes > t->limit_bytes;
    return is_over && s->current_count + s->ended_count ? "I5: over the limit" : NULL;
}
