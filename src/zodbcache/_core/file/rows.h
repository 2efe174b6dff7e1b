/* The file's rows, on a connection that APSW has opened.
 *
 * Whoever calls has begun the transaction.  Each function returns an SQLite
 * result code, SQLITE_OK when all is well; after any other the transaction is
 * to be rolled back.  A row that does not fit its checksum is counted as
 * damaged, and left out.
 *
 * Nothing here needs the GIL.  One thread at a time may use a connection.
 */
#ifndef ZODBCACHE_ROWS_H
#define ZODBCACHE_ROWS_H

#include <stdbool.h>
#include <stdint.h>

#include "batch.h"
#include "oid.h"
#include "sqlite.h"

enum rows_statement {
    ROWS_READ,
    ROWS_READ_AHEAD,
    ROWS_INSERT,
    ROWS_REPLACE,
    ROWS_COMPARE,
    ROWS_DELETE,
    ROWS_COOL,
    ROWS_WARM,
    ROWS_DELETE_WITNESS,
    ROWS_STATEMENTS
};

typedef struct {
    const sqlite_api *api;
    sqlite3 *db;
    sqlite3_stmt *statements[ROWS_STATEMENTS]; /* prepared at first use */
    sqlite3_stmt *scan;                        /* NULL, or what rows_scan reads */
} rows;

/* What a change does to the table. */
typedef struct {
    int64_t changed;     /* rows written or deleted */
    int64_t count;       /* rows more, or less */
    int64_t state_bytes; /* bytes of states more, or less */
} rows_change;

void rows_open(rows *r, const sqlite_api *api, sqlite3 *db);
void rows_close(rows *r);

/* CRC-32 over oid and tid, eight bytes each, and the state. */
uint32_t rows_checksum(uint64_t oid, uint64_t tid, const void *state, size_t state_bytes);

/* Frequencies are stored with the tier's age added; here, and in a batch, they
 * are 0 to FREQUENCY_MAX. */

/* The row of the oid into the batch, if there is one; with ahead > 0 also
 * those of the next so many oids. */
int rows_read(rows *r, uint64_t oid, int64_t ahead, int64_t age, batch *found, int64_t *damaged);

/* Insert what the file lacks or has older.  Of what it has already the
 * frequencies are added. */
int rows_insert(rows *r, const batch *given, int64_t age, rows_change *change);

/* Delete the rows older than their object's name, and the witnesses; the oids
 * ascend. */
int rows_delete_older(rows *r, const name *names, size_t count, rows_change *change);

/* Delete the rows of just these revisions. */
int rows_delete_exactly(rows *r, const name *names, size_t count, rows_change *change);

/* Add to the frequencies of rows that are still of these revisions. */
int rows_warm(rows *r, const revision_gain *gains, size_t count, int64_t age, int64_t *warmed);

/* Begin to read all rows with a tid up to through, by oid; what it has been
 * reading ends. */
int rows_scan(rows *r, int64_t through);

/* Append rows of the value classes from lowest to highest until there are so
 * many or so many bytes.  *done: no more are left. */
int rows_scan_next(rows *r, size_t rows_max, size_t bytes_max, int64_t age, int lowest,
                   int highest, batch *found, int64_t *damaged, bool *done);

void rows_scan_end(rows *r);

/* weigh.c: what a row is worth. */

/* Rows of about one value: how often they were asked for, aged, a byte.  Eight
 * classes double the value. */
enum { VALUE_CLASSES = 1024 };

typedef struct {
    int64_t count[VALUE_CLASSES];
    int64_t state_bytes[VALUE_CLASSES];
} rows_weights;

/* frequency: as it is stored. */
int rows_value_class(int64_t frequency, int64_t age, int64_t state_bytes);

/* All rows by their value.  Reads every page, but no large state. */
int rows_weigh(rows *r, int64_t age, rows_weights *weights);

/* All rows below a class, and of that class a share of so many in 1024, into an
 * array that the caller frees. */
int rows_choose(rows *r, int64_t age, int below, int share, name **names, size_t *count);

#endif
