/* Revisions of objects in a temporary SQLite database, bounded by its size.
 *
 * The same rules as store.h's, for caches that are larger than the memory they
 * may take: that is SQLite's page cache and a few buffers, whatever the limit.
 * The database is one file that SQLite has unlinked already, so that nothing
 * of it outlives the process.  It is one transaction that never ends, without
 * a journal: after any error of SQLite's all of it is thrown away, and it
 * begins anew and empty.
 *
 *   current   the open revision of each oid; a read is one look into it
 *   ended     closed revisions
 *   line      who came when: the queues of the segmented LRU, LINE_PLACES a row
 *   heat      how often each of a line was asked for, a byte each
 *
 * Each revision has a place in a line.  A hit is noted by its place in memory,
 * and many at once are added to the lines' heat.  The two segments, probation
 * and protected, are lines in a row: what is new goes to the last line of
 * probation, victims come from its first, and what was asked for again moves on
 * to protected.  An entry whose revision is elsewhere by now, or gone, is stale.
 *
 * I5  The pages in use + reserved stay within the limit.
 *
 * A fork's child must not touch the database of its parent: tempstore_abandon().
 */
#ifndef ZODBCACHE_TEMPSTORE_H
#define ZODBCACHE_TEMPSTORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "revision.h"
#include "sqlite.h"
#include "tier.h"

#define TEMPSTORE_LIMIT_MAX_BYTES ((size_t)32 << 30)

enum { LINE_PLACES = 512, RECENT_MAX = 8192, UNSAVED_LISTED_MAX = 1 << 16 };

enum temp_statement {
    TEMP_READ,
    TEMP_LOOK,
    TEMP_ADD,
    TEMP_REPLACE,
    TEMP_MOVE,
    TEMP_MARK,
    TEMP_DROP,
    TEMP_END,
    TEMP_SEARCH,
    TEMP_READ_ENDED,
    TEMP_LOOK_ENDED,
    TEMP_LOOK_ENDED_AT,
    TEMP_ADD_ENDED,
    TEMP_END_ENDED,
    TEMP_MOVE_ENDED,
    TEMP_DROP_ENDED,
    TEMP_READ_LINE,
    TEMP_WRITE_LINE,
    TEMP_DROP_LINE,
    TEMP_READ_HEAT,
    TEMP_WRITE_HEAT,
    TEMP_DROP_HEAT,
    TEMP_PAGES,
    TEMP_FREE_PAGES,
    TEMP_STATEMENTS
};

/* A line as it is in memory: the first of a segment, and the last. */
typedef struct {
    uint64_t number;
    uint32_t filled, taken; /* entries that it has, and that have been dealt with */
    uint64_t oids[LINE_PLACES];
    uint8_t heat[LINE_PLACES];
} line;

enum { TEMP_PROBATION, TEMP_PROTECTED, TEMP_SEGMENTS };

typedef struct {
    line last;       /* is being filled */
    line first;      /* is being emptied, its rows deleted */
    uint64_t stored; /* the number of the first line in the database, or the last one's */
    size_t count;    /* revisions */
    size_t bytes;    /* theirs, with ROW_BYTES each */
} queue;

typedef struct {
    tier tier;
    const sqlite_api *api;
    sqlite3 *db; /* NULL: it could not be opened */
    sqlite3_stmt *statements[TEMP_STATEMENTS];
    sqlite3_stmt *reading; /* NULL, or whose row a held state is of */
    int fault;             /* SQLITE_OK, or what went wrong in the present call */
    int last_fault;        /* what went wrong when it was emptied last */
    uint64_t faults;       /* how often */

    queue queues[TEMP_SEGMENTS];
    uint64_t recent[RECENT_MAX]; /* places that were hit */
    uint32_t recent_count;

    size_t reserved_bytes;
    size_t room_bytes;  /* the limit, or what the disk has had room for */
    size_t page_bytes;
    size_t known_bytes; /* pages in use when they were counted */
    size_t added_bytes; /* of rows since then */
    size_t current_count, ended_count;
    size_t current_bytes, ended_bytes; /* of their states */

    int64_t epoch;      /* what was saved in another one is so no more */
    uint64_t *unsaved;  /* oids of open revisions that the file may lack, and others */
    uint32_t unsaved_count;
    int64_t search_from; /* where those that are not listed are sought, if unsaved_left */
} tempstore;

/* As a tier; NULL when there is no memory.  api: of the SQLite in this process. */
tier *tempstore_make(const sqlite_api *api, size_t limit_bytes, size_t object_max_bytes);

/* tempcheck.c: NULL, or which invariant does not hold.  O(n). */
const char *tempstore_check(tier *t);

/* In a fork's child: leave the database to the parent, and begin with an empty one. */
void tempstore_abandon(tempstore *s);

/* tempdb.c: the database. */

enum { ROW_BYTES = 32 }; /* about what a row takes beside its state */

bool tempdb_open(tempstore *s);
void tempdb_close(tempstore *s);

/* Each notes an error as the present call's fault, and does nothing after one. */

/* The statement, bound, or NULL. */
sqlite3_stmt *tempdb_start(tempstore *s, enum temp_statement which, const int64_t *bindings,
                           int count);

/* Step a statement that gives rows: whether there is one.  Then it is to be reset. */
bool tempdb_step(tempstore *s, sqlite3_stmt *statement);
void tempdb_reset(tempstore *s, sqlite3_stmt *statement);

/* Run a statement that gives none; how many rows it changed.  blob: NULL, or its
 * last parameter. */
int tempdb_run(tempstore *s, enum temp_statement which, const int64_t *bindings, int count,
               const void *blob, size_t blob_bytes);

/* Pages in use, in bytes. */
size_t tempdb_bytes(tempstore *s);

/* Whether the SQL, which gives one number, gives this one. */
bool tempdb_gives(tempstore *s, const char *sql, int64_t expected);

/* Whether SQLite finds nothing wrong. */
bool tempdb_is_intact(tempstore *s);

/* tempqueue.c: the lines. */

/* A new entry at the end of a segment: its place. */
uint64_t queue_append(tempstore *s, unsigned segment, uint64_t oid, unsigned heat);

/* The next entry from the segment's beginning, taken out; false when there is none. */
bool queue_take(tempstore *s, unsigned segment, uint64_t *oid, uint64_t *place, unsigned *heat);

static inline unsigned
segment_of(uint64_t place)
{
    return place / LINE_PLACES % TEMP_SEGMENTS;
}

/* Entries, stale ones among them. */
size_t queue_entries(const tempstore *s);

/* The place was hit. */
void queue_note(tempstore *s, uint64_t place);

/* Add what was noted to the heat, when it is much or at once. */
void queue_settle(tempstore *s, bool at_once);

unsigned queue_heat(tempstore *s, uint64_t place);

/* The first entry at or after *place; false when there is none. */
bool queue_next(tempstore *s, uint64_t *place, uint64_t *oid, unsigned *heat);

void queue_clear(tempstore *s);

#endif
