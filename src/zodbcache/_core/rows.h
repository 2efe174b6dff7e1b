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
#include "revision.h"
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

/* Add to the frequencies of rows that are still of these revisions. */
int rows_warm(rows *r, const revision_gain *gains, size_t count, int64_t age, int64_t *warmed);

/* Begin a query for (oid, tid, frequency, checksum, state); what it has been
 * reading ends. */
int rows_scan(rows *r, const char *sql, const int64_t *bindings, int count);

/* Append rows until there are so many or so many bytes.  *done: no more are left. */
int rows_scan_next(rows *r, size_t rows_max, size_t bytes_max, int64_t age, batch *found,
                   int64_t *damaged, bool *done);

void rows_scan_end(rows *r);

#endif
