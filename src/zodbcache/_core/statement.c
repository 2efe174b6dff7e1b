#include "statement.h"

int
statement_start(const sqlite_api *api, sqlite3 *db, const char *sql, sqlite3_stmt **statement,
                const int64_t *bindings, int count)
{
    int code = SQLITE_OK;
    if (*statement == NULL) {
        code = api->prepare_v3(db, sql, -1, SQLITE_PREPARE_PERSISTENT, statement, NULL);
    }
    for (int i = 0; code == SQLITE_OK && i < count; i++) {
        code = api->bind_int64(*statement, i + 1, bindings[i]);
    }
    return code;
}

int
statement_run(const sqlite_api *api, sqlite3 *db, sqlite3_stmt *statement, int *changes)
{
    int code = api->step(statement);
    *changes = code == SQLITE_DONE ? api->changes(db) : 0;
    return statement_end(api, statement, code);
}

int
statement_end(const sqlite_api *api, sqlite3_stmt *statement, int code)
{
    int reset = api->reset(statement);
    return code == SQLITE_ROW || code == SQLITE_DONE ? SQLITE_OK
           : reset != SQLITE_OK                      ? reset
                                                     : code;
}
