#include <stdio.h>
#include <string.h>

#include "statement.h"
#include "tempstore.h"

/* Small pages where a few would be much of the limit. */
enum { PAGE_BYTES = 8192, SMALL_PAGE_BYTES = 4096, SMALL_LIMIT_BYTES = 4 << 20 };

enum { PAGE_CACHE_KIB = 6 << 10 };

/* With two numbers to be filled in: the page's bytes, and the page cache's KiB. */
static const char SCHEMA[] =
    "PRAGMA page_size = %zu;"
    "PRAGMA journal_mode = OFF;"
    "PRAGMA synchronous = OFF;"
    "PRAGMA auto_vacuum = NONE;"
    "PRAGMA secure_delete = OFF;"
    "PRAGMA cache_size = -%d;"
    "CREATE TABLE current (oid INTEGER PRIMARY KEY, tid INTEGER, place INTEGER, marks INTEGER,"
    " sum INTEGER, state BLOB);"
    "CREATE TABLE ended (place INTEGER PRIMARY KEY, oid INTEGER, tid INTEGER, end INTEGER,"
    " bounded INTEGER, sum INTEGER, state BLOB);"
    "CREATE INDEX ended_oid ON ended (oid);"
    "CREATE TABLE line (number INTEGER PRIMARY KEY, oids BLOB);"
    "CREATE TABLE heat (number INTEGER PRIMARY KEY, heat BLOB);"
    "BEGIN";

static const char *const SQL[TEMP_STATEMENTS] = {
    [TEMP_READ] = "SELECT tid, place, marks, sum, state FROM current WHERE oid = ?1",
    [TEMP_LOOK] = "SELECT tid, place, marks, octet_length(state) FROM current WHERE oid = ?1",
    [TEMP_ADD] = "INSERT OR IGNORE INTO current VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    [TEMP_REPLACE] = "UPDATE current SET tid = ?2, marks = ?3, sum = ?4, state = ?5"
                     " WHERE oid = ?1",
    [TEMP_MOVE] = "UPDATE current SET place = ?2 WHERE oid = ?1",
    [TEMP_MARK] = "UPDATE current SET marks = ?2 WHERE oid = ?1",
    [TEMP_DROP] = "DELETE FROM current WHERE oid = ?1",
    [TEMP_END] = "INSERT INTO ended SELECT ?2, oid, tid, ?3, ?4, sum, state FROM current"
                 " WHERE oid = ?1",
    [TEMP_SEARCH] = "SELECT oid, marks FROM current WHERE oid >= ?1 ORDER BY oid LIMIT ?2",
    [TEMP_READ_ENDED] = "SELECT tid, place, end, bounded, sum, state FROM ended WHERE oid = ?1",
    [TEMP_LOOK_ENDED] = "SELECT tid, place, end, bounded, octet_length(state) FROM ended"
                        " WHERE oid = ?1",
    [TEMP_LOOK_ENDED_AT] = "SELECT octet_length(state) FROM ended WHERE place = ?1",
    [TEMP_ADD_ENDED] = "INSERT INTO ended VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    [TEMP_END_ENDED] = "UPDATE ended SET end = ?2, bounded = 0 WHERE place = ?1",
    [TEMP_MOVE_ENDED] = "UPDATE ended SET place = ?2 WHERE place = ?1",
    [TEMP_DROP_ENDED] = "DELETE FROM ended WHERE place = ?1",
    [TEMP_READ_LINE] = "SELECT oids FROM line WHERE number = ?1",
    [TEMP_WRITE_LINE] = "INSERT OR REPLACE INTO line VALUES (?1, ?2)",
    [TEMP_DROP_LINE] = "DELETE FROM line WHERE number = ?1",
    [TEMP_READ_HEAT] = "SELECT heat FROM heat WHERE number = ?1",
    [TEMP_WRITE_HEAT] = "INSERT OR REPLACE INTO heat VALUES (?1, ?2)",
    [TEMP_DROP_HEAT] = "DELETE FROM heat WHERE number = ?1",
    [TEMP_PAGES] = "PRAGMA page_count",
    [TEMP_FREE_PAGES] = "PRAGMA freelist_count",
};

bool
tempdb_open(tempstore *s)
{
    enum {
        FLAGS = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX |
                SQLITE_OPEN_EXRESCODE
    };
    char schema[sizeof SCHEMA + 32];
    s->page_bytes = s->tier.limit_bytes < SMALL_LIMIT_BYTES ? SMALL_PAGE_BYTES : PAGE_BYTES;
    snprintf(schema, sizeof schema, SCHEMA, s->page_bytes, PAGE_CACHE_KIB);
    int code = s->api->open_v2("", &s->db, FLAGS, NULL);
    if (code == SQLITE_OK) {
        code = s->api->exec(s->db, schema, NULL, NULL, NULL);
    }
    if (code != SQLITE_OK) {
        tempdb_close(s);
        s->fault = code;
    }
    return code == SQLITE_OK;
}

void
tempdb_close(tempstore *s)
{
    for (int i = 0; i < TEMP_STATEMENTS; i++) {
        s->api->finalize(s->statements[i]);
        s->statements[i] = NULL;
    }
    s->api->close_v2(s->db);
    s->db = NULL;
    s->reading = NULL;
}

void
tempdb_note(tempstore *s, int code)
{
    if (code != SQLITE_OK && s->fault == SQLITE_OK) {
        s->fault = code;
    }
}

sqlite3_stmt *
tempdb_start(tempstore *s, enum temp_statement which, const int64_t *bindings, int count)
{
    if (s->db == NULL || s->fault != SQLITE_OK) {
        return NULL;
    }
    tempdb_note(s, statement_start(s->api, s->db, SQL[which], &s->statements[which], bindings,
                                   count));
    return s->fault == SQLITE_OK ? s->statements[which] : NULL;
}

bool
tempdb_step(tempstore *s, sqlite3_stmt *statement)
{
    if (statement == NULL) {
        return false;
    }
    int code = s->api->step(statement);
    if (code == SQLITE_ROW) {
        return true;
    }
    tempdb_note(s, statement_end(s->api, statement, code));
    return false;
}

void
tempdb_reset(tempstore *s, sqlite3_stmt *statement)
{
    tempdb_note(s, s->api->reset(statement));
}

int
tempdb_run(tempstore *s, enum temp_statement which, const int64_t *bindings, int count,
           const void *blob, size_t blob_bytes)
{
    int changes = 0;
    sqlite3_stmt *statement = tempdb_start(s, which, bindings, count);
    if (statement != NULL && blob != NULL) {
        tempdb_note(s, s->api->bind_blob(statement, count + 1, blob, (int)blob_bytes,
                                         SQLITE_STATIC));
    }
    if (statement != NULL && s->fault == SQLITE_OK) {
        tempdb_note(s, statement_run(s->api, s->db, statement, &changes));
    }
    return changes;
}

static int64_t
number(tempstore *s, enum temp_statement which)
{
    int64_t found = 0;
    sqlite3_stmt *statement = tempdb_start(s, which, NULL, 0);
    if (tempdb_step(s, statement)) {
        found = s->api->column_int64(statement, 0);
        tempdb_reset(s, statement);
    }
    return found;
}

size_t
tempdb_bytes(tempstore *s)
{
    int64_t pages = number(s, TEMP_PAGES) - number(s, TEMP_FREE_PAGES);
    return pages > 0 ? (size_t)pages * s->page_bytes : 0;
}

bool
tempdb_gives(tempstore *s, const char *sql, int64_t expected)
{
    sqlite3_stmt *statement = NULL;
    tempdb_note(s, statement_start(s->api, s->db, sql, &statement, NULL, 0));
    bool is_so = tempdb_step(s, statement) && s->api->column_int64(statement, 0) == expected;
    s->api->finalize(statement);
    return is_so;
}

bool
tempdb_is_intact(tempstore *s)
{
    sqlite3_stmt *statement = NULL;
    const char *sql = "PRAGMA integrity_check(1)";
    tempdb_note(s, statement_start(s->api, s->db, sql, &statement, NULL, 0));
    bool is_ok = tempdb_step(s, statement) && s->api->column_bytes(statement, 0) == 2 &&
                 memcmp(s->api->column_blob(statement, 0), "ok", 2) == 0;
    s->api->finalize(statement);
    return is_ok;
}
