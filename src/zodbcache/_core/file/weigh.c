/* What a row of the file is worth, and which rows are worth least. */
#include <math.h>
#include <stdlib.h>

#include "rows.h"

/* What a row costs beside its state, as the limit counts it. */
enum { ROW_OVERHEAD_BYTES = 40 };

enum { CLASSES_A_DOUBLING = 8, CLASS_OF_ONE = 800, SHARES = 1024 };

/* All that is needed but the states themselves. */
static const char WEIGHED[] =
    "SELECT record.oid, CAST(record.tid AS INTEGER),"
    " CAST(ifnull(heat.frequency, record.frequency) AS INTEGER),"
    " CAST(record.checksum AS INTEGER), octet_length(record.state)"
    " FROM record LEFT JOIN heat ON heat.oid = record.oid ORDER BY record.oid";

enum { OID_COLUMN, TID_COLUMN, FREQUENCY_COLUMN, CHECKSUM_COLUMN, SIZE_COLUMN };

/* The logarithm to the base two, linear between two powers: monotonic, and cheap. */
static int
class_of(double value)
{
    int exponent;
    double fraction = frexp(value, &exponent); /* 0.5 to 1 */
    return CLASS_OF_ONE + CLASSES_A_DOUBLING * exponent +
           (int)((fraction - 0.5) * 2 * CLASSES_A_DOUBLING);
}

int
rows_value_class(int64_t frequency, int64_t age, int64_t state_bytes)
{
    double left = (double)frequency - (double)age;
    left = left < FREQUENCY_MAX ? left : FREQUENCY_MAX;
    double requests = left >= 0 ? left + 1 : 1 / (1 - left);
    int class = class_of(requests / (double)(state_bytes + ROW_OVERHEAD_BYTES));
    return class < 0 ? 0 : class < VALUE_CLASSES ? class : VALUE_CLASSES - 1;
}

static int
class_of_row(const sqlite_api *api, sqlite3_stmt *statement, int64_t age)
{
    return rows_value_class(api->column_int64(statement, FREQUENCY_COLUMN), age,
                            api->column_int64(statement, SIZE_COLUMN));
}

int
rows_weigh(rows *r, int64_t age, rows_weights *weights)
{
    sqlite3_stmt *statement = NULL;
    int code = r->api->prepare_v3(r->db, WEIGHED, -1, 0, &statement, NULL);
    while (code == SQLITE_OK || code == SQLITE_ROW) {
        code = r->api->step(statement);
        if (code == SQLITE_ROW) {
            int class = class_of_row(r->api, statement, age);
            weights->count[class]++;
            weights->state_bytes[class] += r->api->column_int64(statement, SIZE_COLUMN);
        }
    }
    r->api->finalize(statement);
    return code == SQLITE_DONE ? SQLITE_OK : code;
}

/* Among rows of one class, by no order that means anything: by checksum. */
static bool
is_chosen(const sqlite_api *api, sqlite3_stmt *statement, int64_t age, int below, int share)
{
    int class = class_of_row(api, statement, age);
    return class < below ||
           (class == below && api->column_int64(statement, CHECKSUM_COLUMN) % SHARES < share);
}

static bool
append(name **names, size_t *count, size_t *capacity, name added)
{
    if (*count == *capacity) {
        size_t wanted = *capacity ? 2 * *capacity : SHARES;
        name *grown = realloc(*names, wanted * sizeof *grown);
        if (grown == NULL) {
            return false;
        }
        *names = grown;
        *capacity = wanted;
    }
    (*names)[(*count)++] = added;
    return true;
}

int
rows_choose(rows *r, int64_t age, int below, int share, name **names, size_t *count)
{
    sqlite3_stmt *statement = NULL;
    size_t capacity = 0;
    *names = NULL;
    *count = 0;
    int code = r->api->prepare_v3(r->db, WEIGHED, -1, 0, &statement, NULL);
    while (code == SQLITE_OK || code == SQLITE_ROW) {
        code = r->api->step(statement);
        if (code == SQLITE_ROW && is_chosen(r->api, statement, age, below, share)) {
            name victim = {(uint64_t)r->api->column_int64(statement, OID_COLUMN),
                           (uint64_t)r->api->column_int64(statement, TID_COLUMN)};
            code = append(names, count, &capacity, victim) ? code : SQLITE_NOMEM;
        }
    }
    r->api->finalize(statement);
    if (code != SQLITE_DONE) {
        free(*names);
        *names = NULL;
        return code;
    }
    return SQLITE_OK;
}
