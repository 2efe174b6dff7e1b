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

#include "oid.h"
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

/* A place that an object has left. */
typedef struct {
    uint64_t oid;
    uint64_t place; /* 0: none */
} seat;

enum { SEATS = 4096 };

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
    unsigned refusals;     /* of what was to be kept, while there is no database */
    unsigned kept;         /* since the room became less */

    queue queues[TEMP_SEGMENTS];
    uint64_t recent[RECENT_MAX]; /* places that were hit */
    uint32_t recent_count;
    seat seats[SEATS];    /* by hash: places that are free, and whose object may come back */
    uint64_t heat_number; /* the line whose heat was read last, and not changed since; or 0 */
    uint8_t heat[LINE_PLACES];

    size_t reserved_bytes;
    size_t room_bytes;  /* the limit, or what the disk has had room for */
    size_t page_bytes;
    size_t known_bytes; /* pages in use when they were counted */
    size_t added_bytes; /* of rows since then */
    size_t added_rows;
    size_t current_count, ended_count;
    size_t current_bytes, ended_bytes; /* of their states */

    int64_t epoch;      /* what was saved in another one is so no more */
    uint64_t *unsaved;  /* oids of open revisions that the file may lack, and others */
    uint32_t unsaved_count;
    int64_t search_from; /* where those that are not listed are sought, if unsaved_left */
} tempstore;

/* As a tier; NULL when there is no memory.  api: of the SQLite in this process. */
tier *tempstore_make(const sqlite_api *api, size_t limit_bytes, size_t object_max_bytes);

/* check.c: NULL, or which invariant does not hold.  O(n). */
const char *tempstore_check(tier *t);

/* In a fork's child: leave the database to the parent, and begin with an empty one. */
void tempstore_abandon(tempstore *s);

/* db.c: the database. */

enum { ROW_BYTES = 32 }; /* about what a row takes beside its state */

bool tempdb_open(tempstore *s);
void tempdb_close(tempstore *s);

/* An error, as the present call's fault. */
void tempdb_note(tempstore *s, int code);

/* Each notes its errors, and does nothing after one. */

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

/* queue.c: the lines. */

/* An entry's heat: how often its object was asked for, and how often of that since
 * it came into its segment; four bits each. */
static inline uint8_t
heat_of(unsigned frequency, unsigned hits)
{
    return (uint8_t)(frequency << 4 | hits);
}

static inline unsigned
heat_frequency(uint8_t heat)
{
    return heat >> 4;
}

static inline unsigned
heat_hits(uint8_t heat)
{
    return heat & 15;
}

/* A new entry at the end of a segment: its place. */
uint64_t queue_append(tempstore *s, unsigned segment, uint64_t oid, uint8_t heat);

/* The next entry from the segment's beginning, taken out; false when there is none. */
bool queue_take(tempstore *s, unsigned segment, uint64_t *oid, uint64_t *place, uint8_t *heat);

static inline unsigned
segment_of(uint64_t place)
{
    return place / LINE_PLACES % TEMP_SEGMENTS;
}

/* What changed comes back soon, as another revision: it gets the place that it
 * had, and so the heat.  queue_return: the place, or 0. */
void queue_leave(tempstore *s, uint64_t oid, uint64_t place);
uint64_t queue_return(tempstore *s, uint64_t oid);

/* Entries, stale ones among them. */
size_t queue_entries(const tempstore *s);

/* The place was hit. */
void queue_note(tempstore *s, uint64_t place);

/* Add what was noted to the heat, when it is much or at once. */
void queue_settle(tempstore *s, bool at_once);

uint8_t queue_heat(tempstore *s, uint64_t place);

/* The first entry at or after *place; false when there is none. */
bool queue_next(tempstore *s, uint64_t *place, uint64_t *oid, uint8_t *heat);

void queue_clear(tempstore *s);

/* rows.c: revisions, and the counts that go with them. */

/* What is known of a revision without its state. */
typedef struct {
    uint64_t oid, tid, place;
    uint64_t end;  /* 0: open */
    bool bounded;  /* closed, and its successor came at its end or some time later */
    int64_t marks; /* of an open one: see marks_of() */
    size_t state_bytes;
} row;

/* A row's marks: the epoch, the frequency that the file has heard of, and two flags. */
enum { MARK_SAVED = 1, MARK_RESTORED = 2, MARK_TOLD_SHIFT = 4, MARK_EPOCH_SHIFT = 8 };

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

static inline size_t
row_bytes(size_t state_bytes)
{
    return state_bytes + ROW_BYTES;
}

/* What a row's oid, tid and state sum up to, in 31 bits.  A disk may err; and where
 * a read comes up short SQLite goes on with zeros. */
int64_t row_sum(uint64_t oid, uint64_t tid, const void *state, size_t state_bytes);

/* The open revision of the oid. */
bool row_look(tempstore *s, uint64_t oid, row *r);

/* The closed ones; how many. */
int row_look_ended(tempstore *s, uint64_t oid, row rows[REVISIONS_MAX + 1]);

/* The revision that has this place; false if the entry is stale. */
bool row_look_at(tempstore *s, uint64_t oid, uint64_t place, row *r);

/* A row has come, or become longer: it may need new pages. */
static inline void
row_count_added(tempstore *s, size_t state_bytes)
{
    s->added_bytes += row_bytes(state_bytes);
    s->added_rows++;
}

/* The segment of its place has it, or has it no more. */
void row_count_in(tempstore *s, const row *r);
void row_count_out(tempstore *s, const row *r);

void row_drop(tempstore *s, const row *r);

/* From its place to a new one at the end of a segment. */
void row_move(tempstore *s, row *r, unsigned segment, uint8_t heat);

void row_mark(tempstore *s, const row *r, int64_t marks);

/* store.c: what is held, and for how long. */

/* What a look-up asks for. */
typedef struct {
    uint64_t before, tid;
    bool end_wanted;
    bool exactly; /* just this tid, visible or not; otherwise what is visible just before */
} wish;

/* One look into current, and only if that does not do another into ended.  The
 * held state is valid until s->reading is reset. */
bool tempstore_find(tempstore *s, uint64_t oid, const wish *w, held *found, uint64_t *place,
                    int64_t *marks);

/* What is to be kept. */
typedef struct {
    uint64_t oid, tid, end;
    const char *state;
    size_t state_bytes;
    bool restored; /* the file has it */
    unsigned told; /* and the frequency that it knows */
    uint8_t heat;
} entrant;

/* Whether it is held afterwards. */
bool tempstore_keep(tempstore *s, const entrant *e);

/* Keep it if there is room without evicting; false when there is none. */
bool tempstore_restore(tempstore *s, const entrant *e);

void tempstore_end(tempstore *s, uint64_t oid, uint64_t tid, enum ending ending);
void tempstore_forget(tempstore *s, uint64_t oid);

/* room.c: who has to go. */

/* Whether there is room for a state, evicting what it takes if that is allowed. */
bool room_make(tempstore *s, size_t state_bytes, bool may_evict);

/* Some work for the lines, if most of their entries are stale. */
void room_clear_stale(tempstore *s);

size_t room_protected_target(const tempstore *s);
void room_count_pages(tempstore *s);

/* saving.c: what the file lacks. */

void saving_note(tempstore *s, uint64_t oid);
void saving_take(tempstore *s, uint64_t *oids, size_t *count);
void saving_return(tempstore *s, const uint64_t *oids, size_t count);
void saving_search(tempstore *s);
size_t saving_pack(tempstore *s, const uint64_t *oids, size_t count, uint64_t through,
                   size_t bytes_max, batch *found);
size_t saving_heated(tempstore *s, size_t *position, size_t slots, unsigned faded,
                     revision_gain *gains);

/* saving_take() gives so many at most. */
enum { SEARCH_ROWS = 8192, TAKEN_MAX = UNSAVED_LISTED_MAX + SEARCH_ROWS };

#endif
