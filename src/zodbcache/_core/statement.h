/* Prepared statements: prepared at first use, bound, run, and reset.
 *
 * Each function returns an SQLite result code, SQLITE_OK when all is well.
 */
#ifndef ZODBCACHE_STATEMENT_H
#define ZODBCACHE_STATEMENT_H

#include <stdint.h>

#include "sqlite.h"

/* *statement: NULL, or prepared before.  Its first parameters are bound. */
int statement_start(const sqlite_api *api, sqlite3 *db, const char *sql, sqlite3_stmt **statement,
                    const int64_t *bindings, int count);

/* Run a statement that gives no rows; tell how many it changed. */
int statement_run(const sqlite_api *api, sqlite3 *db, sqlite3_stmt *statement, int *changes);

/* The code of a statement after its last step. */
int statement_end(const sqlite_api *api, sqlite3_stmt *statement, int code);

#endif
