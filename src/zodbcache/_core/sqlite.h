/* As much of SQLite's C interface as is used here.
 *
 * The functions belong to the one SQLite that APSW has in it.  They come as the
 * table that SQLite gives to a loadable extension; the order of its entries is
 * fixed for good (https://sqlite.org/loadext.html).  So nothing is linked, no
 * header has to be installed, and no second SQLite gets into the process, which
 * would break the file's locks.
 */
#ifndef ZODBCACHE_SQLITE_H
#define ZODBCACHE_SQLITE_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#define SQLITE_OK 0
#define SQLITE_NOMEM 7
#define SQLITE_IOERR 10
#define SQLITE_CORRUPT 11
#define SQLITE_FULL 13
#define SQLITE_CANTOPEN 14
#define SQLITE_IOERR_SHORT_READ 522
#define SQLITE_ROW 100
#define SQLITE_DONE 101

#define SQLITE_INTEGER 1
#define SQLITE_TEXT 3
#define SQLITE_BLOB 4

#define SQLITE_OPEN_READWRITE 0x00000002
#define SQLITE_OPEN_CREATE 0x00000004
#define SQLITE_OPEN_NOMUTEX 0x00008000
#define SQLITE_OPEN_EXRESCODE 0x02000000

#define SQLITE_PREPARE_PERSISTENT 1u
#define SQLITE_STATIC ((sqlite_destructor *)0)

typedef struct sqlite3 sqlite3;
typedef struct sqlite3_stmt sqlite3_stmt;
typedef struct sqlite3_vfs sqlite3_vfs;
typedef struct sqlite3_file sqlite3_file;
typedef void sqlite_destructor(void *);
typedef void (*sqlite_unused)(void);

typedef struct {
    sqlite_unused before_bind_blob[2];
    int (*bind_blob)(sqlite3_stmt *, int, const void *, int, sqlite_destructor *);
    sqlite_unused before_bind_int64[2];
    int (*bind_int64)(sqlite3_stmt *, int, int64_t);
    sqlite_unused before_bind_text[4];
    int (*bind_text)(sqlite3_stmt *, int, const char *, int, sqlite_destructor *);
    sqlite_unused before_changes[4];
    int (*changes)(sqlite3 *);
    sqlite_unused before_column_blob[3];
    const void *(*column_blob)(sqlite3_stmt *, int);
    int (*column_bytes)(sqlite3_stmt *, int);
    sqlite_unused before_column_count[1];
    int (*column_count)(sqlite3_stmt *);
    sqlite_unused before_column_int64[6];
    int64_t (*column_int64)(sqlite3_stmt *, int);
    sqlite_unused before_column_text[6];
    const unsigned char *(*column_text)(sqlite3_stmt *, int);
    sqlite_unused before_column_type[1];
    int (*column_type)(sqlite3_stmt *, int);
    sqlite_unused before_errmsg[14];
    const char *(*errmsg)(sqlite3 *);
    sqlite_unused before_exec[1];
    int (*exec)(sqlite3 *, const char *, int (*)(void *, int, char **, char **), void *, char **);
    sqlite_unused before_finalize[1];
    int (*finalize)(sqlite3_stmt *);
    sqlite_unused before_reset[19];
    int (*reset)(sqlite3_stmt *);
    sqlite_unused before_step[16];
    int (*step)(sqlite3_stmt *);
    sqlite_unused before_open_v2[40];
    int (*open_v2)(const char *, sqlite3 **, int, const char *);
    sqlite_unused before_vfs_find[5];
    sqlite3_vfs *(*vfs_find)(const char *);
    int (*vfs_register)(sqlite3_vfs *, int);
    sqlite_unused before_extended_errcode[23];
    int (*extended_errcode)(sqlite3 *);
    sqlite_unused before_close_v2[12];
    int (*close_v2)(sqlite3 *);
    sqlite_unused before_prepare_v3[37];
    int (*prepare_v3)(sqlite3 *, const char *, int, unsigned, sqlite3_stmt **, const char **);
} sqlite_api;

#define SQLITE_ENTRY(name, index)                                                                  \
    static_assert(offsetof(sqlite_api, name) == (index) * sizeof(sqlite_unused), #name)

SQLITE_ENTRY(bind_blob, 2);
SQLITE_ENTRY(bind_int64, 5);
SQLITE_ENTRY(bind_text, 10);
SQLITE_ENTRY(changes, 15);
SQLITE_ENTRY(column_blob, 19);
SQLITE_ENTRY(column_bytes, 20);
SQLITE_ENTRY(column_count, 22);
SQLITE_ENTRY(column_int64, 29);
SQLITE_ENTRY(column_text, 36);
SQLITE_ENTRY(column_type, 38);
SQLITE_ENTRY(errmsg, 53);
SQLITE_ENTRY(exec, 55);
SQLITE_ENTRY(finalize, 57);
SQLITE_ENTRY(reset, 77);
SQLITE_ENTRY(step, 94);
SQLITE_ENTRY(open_v2, 135);
SQLITE_ENTRY(vfs_find, 141);
SQLITE_ENTRY(vfs_register, 142);
SQLITE_ENTRY(extended_errcode, 166);
SQLITE_ENTRY(close_v2, 179);
SQLITE_ENTRY(prepare_v3, 217);

/* What a VFS is made of (https://sqlite.org/vfs.html). */

#define SQLITE_OPEN_MAIN_DB 0x00000100

typedef struct {
    int iVersion;
    int (*xClose)(sqlite3_file *);
    int (*xRead)(sqlite3_file *, void *, int, int64_t);
    int (*xWrite)(sqlite3_file *, const void *, int, int64_t);
    int (*xTruncate)(sqlite3_file *, int64_t);
    int (*xSync)(sqlite3_file *, int);
    int (*xFileSize)(sqlite3_file *, int64_t *);
    int (*xLock)(sqlite3_file *, int);
    int (*xUnlock)(sqlite3_file *, int);
    int (*xCheckReservedLock)(sqlite3_file *, int *);
    int (*xFileControl)(sqlite3_file *, int, void *);
    int (*xSectorSize)(sqlite3_file *);
    int (*xDeviceCharacteristics)(sqlite3_file *);
    int (*xShmMap)(sqlite3_file *, int, int, int, void volatile **);
    int (*xShmLock)(sqlite3_file *, int, int, int);
    void (*xShmBarrier)(sqlite3_file *);
    int (*xShmUnmap)(sqlite3_file *, int);
} sqlite3_io_methods; /* version 2: without memory-mapped files */

struct sqlite3_file {
    const sqlite3_io_methods *pMethods;
};

struct sqlite3_vfs {
    int iVersion;
    int szOsFile;
    int mxPathname;
    sqlite3_vfs *pNext;
    const char *zName;
    void *pAppData;
    int (*xOpen)(sqlite3_vfs *, const char *, sqlite3_file *, int, int *);
    int (*xDelete)(sqlite3_vfs *, const char *, int);
    int (*xAccess)(sqlite3_vfs *, const char *, int, int *);
    int (*xFullPathname)(sqlite3_vfs *, const char *, int, char *);
    void *(*xDlOpen)(sqlite3_vfs *, const char *);
    void (*xDlError)(sqlite3_vfs *, int, char *);
    void (*(*xDlSym)(sqlite3_vfs *, void *, const char *))(void);
    void (*xDlClose)(sqlite3_vfs *, void *);
    int (*xRandomness)(sqlite3_vfs *, int, char *);
    int (*xSleep)(sqlite3_vfs *, int);
    int (*xCurrentTime)(sqlite3_vfs *, double *);
    int (*xGetLastError)(sqlite3_vfs *, int, char *);
    int (*xCurrentTimeInt64)(sqlite3_vfs *, int64_t *); /* from version 2 on */
};

#endif
