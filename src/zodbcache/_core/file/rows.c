#include "rows.h"

#include <string.h>

#include "crc32.h"
#include "statement.h"

/* Without the heat, which would cost a read another search. */
#define COLUMNS                                                                                    \
    "SELECT oid, tid, frequency, checksum, state FROM record"

static const char *const SQL[ROWS_STATEMENTS] = {
    [ROWS_READ] = COLUMNS " WHERE oid = ?1",
    [ROWS_READ_AHEAD] = COLUMNS " WHERE oid BETWEEN ?1 AND ?2 ORDER BY oid LIMIT ?3",
    [ROWS_INSERT] = "INSERT INTO record VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO NOTHING",
    [ROWS_REPLACE] = "UPDATE record SET tid = ?2, frequency = ?3, checksum = ?4, state = ?5"
                     " WHERE oid = ?1",
    [ROWS_COMPARE] = "SELECT record.tid, octet_length(record.state),"
                     " ifnull(heat.frequency, record.frequency)"
                     " FROM record LEFT JOIN heat ON heat.oid = record.oid WHERE record.oid = ?1",
    [ROWS_DELETE] = "DELETE FROM record WHERE oid = ?1",
    [ROWS_COOL] = "DELETE FROM heat WHERE oid = ?1",
    [ROWS_WARM] = "INSERT INTO heat VALUES (?1, ?2)"
                  " ON CONFLICT(oid) DO UPDATE SET frequency = excluded.frequency",
    [ROWS_DELETE_WITNESS] = "DELETE FROM witness WHERE oid = ?1 AND tid < ?2",
};

static const char SCAN[] =
    "SELECT record.oid, record.tid, ifnull(heat.frequency, record.frequency), record.checksum,"
    " record.state FROM record LEFT JOIN heat ON heat.oid = record.oid WHERE record.tid <= ?1"
    " ORDER BY record.oid";

enum { OID_COLUMN, TID_COLUMN, FREQUENCY_COLUMN, CHECKSUM_COLUMN, STATE_COLUMN };

void
rows_open(rows *r, const sqlite_api *api, sqlite3 *db)
{
    memset(r, 0, sizeof *r);
    r->api = api;
    r->db = db;
}

void
rows_close(rows *r)
{
    rows_scan_end(r);
    for (int i = 0; i < ROWS_STATEMENTS; i++) {
        r->api->finalize(r->statements[i]);
        r->statements[i] = NULL;
    }
}

uint32_t
rows_checksum(uint64_t oid, uint64_t tid, const void *state, size_t state_bytes)
{
    unsigned char ids[16];
    for (int i = 0; i < 8; i++) {
        ids[i] = (unsigned char)(oid >> (56 - 8 * i));
        ids[8 + i] = (unsigned char)(tid >> (56 - 8 * i));
    }
    return crc32_of(crc32_of(0, ids, sizeof ids), state, state_bytes);
}

/* The statement, with its first parameters bound. */
static int
start(rows *r, enum rows_statement which, sqlite3_stmt **statement, const int64_t *bindings,
      int count)
{
    int code = statement_start(r->api, r->db, SQL[which], &r->statements[which], bindings, count);
    *statement = r->statements[which];
    return code;
}

static int
run_with(rows *r, enum rows_statement which, const int64_t *bindings, int count, int *changes)
{
    sqlite3_stmt *statement;
    int code = start(r, which, &statement, bindings, count);
    return code == SQLITE_OK ? statement_run(r->api, r->db, statement, changes) : code;
}

/* What is left of a stored frequency. */
static int64_t
aged(int64_t stored, int64_t age)
{
    return stored <= age ? 0 : stored < age + FREQUENCY_MAX ? stored - age : FREQUENCY_MAX;
}

/* The statement's row into the batch, if it fits its checksum. */
static int
take(rows *r, sqlite3_stmt *statement, int64_t age, batch *found, int64_t *damaged)
{
    const sqlite_api *api = r->api;
    uint64_t oid = (uint64_t)api->column_int64(statement, OID_COLUMN);
    uint64_t tid = (uint64_t)api->column_int64(statement, TID_COLUMN);
    const void *state = api->column_blob(statement, STATE_COLUMN);
    size_t state_bytes = (size_t)api->column_bytes(statement, STATE_COLUMN);
    if ((int64_t)tid < 0 || api->column_type(statement, CHECKSUM_COLUMN) != SQLITE_INTEGER ||
        api->column_int64(statement, CHECKSUM_COLUMN) !=
            (int64_t)rows_checksum(oid, tid, state, state_bytes)) {
        ++*damaged;
        return SQLITE_OK;
    }
    int64_t frequency = aged(api->column_int64(statement, FREQUENCY_COLUMN), age);
    return batch_add(found, oid, tid, frequency, state, state_bytes) ? SQLITE_OK : SQLITE_NOMEM;
}

int
rows_read(rows *r, uint64_t oid, int64_t ahead, int64_t age, batch *found, int64_t *damaged)
{
    sqlite3_stmt *statement;
    int64_t last = (int64_t)oid > INT64_MAX - ahead ? INT64_MAX : (int64_t)oid + ahead;
    int64_t bindings[] = {(int64_t)oid, last, ahead};
    int code = ahead ? start(r, ROWS_READ_AHEAD, &statement, bindings, 3)
                     : start(r, ROWS_READ, &statement, bindings, 1);
    if (code != SQLITE_OK) {
        return code;
    }
    while ((code = r->api->step(statement)) == SQLITE_ROW) {
        code = take(r, statement, age, found, damaged);
        if (code != SQLITE_OK) {
            break;
        }
        if (!ahead) { /* oid is the key */
            code = SQLITE_DONE;
            break;
        }
    }
    return statement_end(r->api, statement, code);
}

/* What the file has of an oid. */
typedef struct {
    bool is_there;
    uint64_t tid;
    int64_t state_bytes;
    int64_t frequency;
} present;

static int
compare(rows *r, uint64_t oid, present *found)
{
    sqlite3_stmt *statement;
    int64_t bindings[] = {(int64_t)oid};
    int code = start(r, ROWS_COMPARE, &statement, bindings, 1);
    if (code != SQLITE_OK) {
        return code;
    }
    code = r->api->step(statement);
    found->is_there = code == SQLITE_ROW;
    if (found->is_there) {
        found->tid = (uint64_t)r->api->column_int64(statement, 0);
        found->state_bytes = r->api->column_int64(statement, 1);
        found->frequency = r->api->column_int64(statement, 2);
    }
    return statement_end(r->api, statement, code);
}

/* How often, as it is stored, after gain more requests. */
static int64_t
warmer(int64_t stored, int64_t gain, int64_t age)
{
    int64_t frequency = aged(stored, age) + gain;
    return age + (frequency < FREQUENCY_MAX ? frequency : FREQUENCY_MAX);
}

static int
warm(rows *r, uint64_t oid, int64_t stored, int64_t gain, int64_t age)
{
    int64_t bindings[] = {(int64_t)oid, warmer(stored, gain, age)};
    int changes;
    return bindings[1] == stored ? SQLITE_OK : run_with(r, ROWS_WARM, bindings, 2, &changes);
}

static int
write_row(rows *r, enum rows_statement which, const batch *given, const batch_row *row, int64_t age,
          int *changes)
{
    const char *state = batch_state(given, row);
    sqlite3_stmt *statement;
    int64_t bindings[] = {(int64_t)row->oid, (int64_t)row->tid, row->frequency + age,
                          rows_checksum(row->oid, row->tid, state, row->state_bytes)};
    int code = start(r, which, &statement, bindings, 4);
    if (code == SQLITE_OK) { /* no address would be NULL */
        code = r->api->bind_blob(statement, 5, row->state_bytes ? state : "",
                                 (int)row->state_bytes, SQLITE_STATIC);
    }
    return code == SQLITE_OK ? statement_run(r->api, r->db, statement, changes) : code;
}

static int
insert_row(rows *r, const batch *given, const batch_row *row, int64_t age, rows_change *change)
{
    int changes;
    int code = write_row(r, ROWS_INSERT, given, row, age, &changes);
    if (code != SQLITE_OK) {
        return code;
    }
    if (changes) {
        change->changed++;
        change->count++;
        change->state_bytes += row->state_bytes;
        return SQLITE_OK;
    }
    present old;
    code = compare(r, row->oid, &old);
    if (code != SQLITE_OK) {
        return code;
    }
    if (old.tid >= row->tid) { /* I6 */
        return old.tid == row->tid ? warm(r, row->oid, old.frequency, row->frequency, age)
                                   : SQLITE_OK;
    }
    code = write_row(r, ROWS_REPLACE, given, row, age, &changes);
    if (code == SQLITE_OK) {
        change->changed++;
        change->state_bytes += row->state_bytes - old.state_bytes;
        int64_t oid = (int64_t)row->oid;
        code = run_with(r, ROWS_COOL, &oid, 1, &changes);
    }
    return code;
}

int
rows_insert(rows *r, const batch *given, int64_t age, rows_change *change)
{
    int code = SQLITE_OK;
    for (size_t i = 0; code == SQLITE_OK && i < given->count; i++) {
        code = insert_row(r, given, &given->rows[i], age, change);
    }
    return code;
}

static int
delete_row(rows *r, uint64_t oid, int64_t state_bytes, rows_change *change)
{
    int64_t binding = (int64_t)oid;
    int changes;
    int code = run_with(r, ROWS_DELETE, &binding, 1, &changes);
    if (code == SQLITE_OK && changes) {
        change->changed++;
        change->count--;
        change->state_bytes -= state_bytes;
        code = run_with(r, ROWS_COOL, &binding, 1, &changes);
    }
    return code;
}

int
rows_delete_older(rows *r, const name *names, size_t count, rows_change *change)
{
    int code = SQLITE_OK;
    for (size_t i = 0; code == SQLITE_OK && i < count; i++) {
        int64_t bindings[] = {(int64_t)names[i].oid, (int64_t)names[i].tid};
        present old;
        int changes;
        code = run_with(r, ROWS_DELETE_WITNESS, bindings, 2, &changes);
        if (code == SQLITE_OK) {
            code = compare(r, names[i].oid, &old);
        }
        if (code == SQLITE_OK && old.is_there && old.tid < names[i].tid) {
            code = delete_row(r, names[i].oid, old.state_bytes, change);
        }
    }
    return code;
}

int
rows_delete_exactly(rows *r, const name *names, size_t count, rows_change *change)
{
    int code = SQLITE_OK;
    for (size_t i = 0; code == SQLITE_OK && i < count; i++) {
        present old;
        code = compare(r, names[i].oid, &old);
        if (code == SQLITE_OK && old.is_there && old.tid == names[i].tid) {
            code = delete_row(r, names[i].oid, old.state_bytes, change);
        }
    }
    return code;
}

int
rows_warm(rows *r, const revision_gain *gains, size_t count, int64_t age, int64_t *warmed)
{
    int code = SQLITE_OK;
    for (size_t i = 0; code == SQLITE_OK && i < count; i++) {
        present old;
        code = compare(r, gains[i].oid, &old);
        if (code == SQLITE_OK && old.is_there && old.tid == gains[i].tid) {
            code = warm(r, gains[i].oid, old.frequency, gains[i].gain, age);
            ++*warmed;
        }
    }
    return code;
}

int
rows_scan(rows *r, int64_t through)
{
    rows_scan_end(r);
    int code = r->api->prepare_v3(r->db, SCAN, -1, 0, &r->scan, NULL);
    return code == SQLITE_OK ? r->api->bind_int64(r->scan, 1, through) : code;
}

static bool
is_wanted(rows *r, int64_t age, int lowest, int highest)
{
    if (lowest <= 0 && highest >= VALUE_CLASSES - 1) {
        return true;
    }
    int value = rows_value_class(r->api->column_int64(r->scan, FREQUENCY_COLUMN), age,
                                 r->api->column_bytes(r->scan, STATE_COLUMN));
    return lowest <= value && value <= highest;
}

int
rows_scan_next(rows *r, size_t rows_max, size_t bytes_max, int64_t age, int lowest, int highest,
               batch *found, int64_t *damaged, bool *done)
{
    int code = SQLITE_OK;
    *done = r->scan == NULL;
    while (!*done && code == SQLITE_OK && found->count < rows_max &&
           found->states_bytes < bytes_max) {
        code = r->api->step(r->scan);
        if (code == SQLITE_ROW) {
            code = is_wanted(r, age, lowest, highest) ? take(r, r->scan, age, found, damaged)
                                                      : SQLITE_OK;
        }
        else if (code == SQLITE_DONE) {
            *done = true;
            code = SQLITE_OK;
        }
    }
    if (*done || code != SQLITE_OK) {
        rows_scan_end(r);
    }
    return code;
}

void
rows_scan_end(rows *r)
{
    if (r->scan != NULL) {
        r->api->finalize(r->scan);
        r->scan = NULL;
    }
}
