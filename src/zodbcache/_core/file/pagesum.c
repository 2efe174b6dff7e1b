#include "pagesum.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE_MIN_BYTES = 512, PAGE_MAX_BYTES = 65536, RESERVE_AT = 20 };

static const sqlite_api *sqlite;

/* Of the default VFS; real is allocated with its size. */
typedef struct {
    sqlite3_file file;
    sqlite3_file *real;
    bool is_database;
    bool has_sums; /* as the first page says */
    bool compares;
} sum_file;

static inline sum_file *
of(sqlite3_file *file)
{
    return (sum_file *)file;
}

static inline sqlite3_file *
real(sqlite3_file *file)
{
    return of(file)->real;
}

/* Where an earlier default is gone we may have become it: the next one then. */
static sqlite3_vfs *
base(void)
{
    sqlite3_vfs *found = sqlite->vfs_find(NULL);
    return strcmp(found->zName, PAGESUM_VFS) == 0 ? found->pNext : found;
}

/* Two sums, the second weighted by the place.  A flipped bit changes the first
 * by a power of two; words that change places change the second. */
uint64_t
pagesum_of(const void *data, size_t size)
{
    uint32_t plain = 0, weighted = 0;
    const char *word = data;
    for (uint32_t i = 1; i <= size / sizeof(uint32_t); i++, word += sizeof(uint32_t)) {
        uint32_t value;
        memcpy(&value, word, sizeof value);
        plain += value;
        weighted += value * (2 * i + 1);
    }
    return (uint64_t)weighted << 32 | plain;
}

static bool
is_page(const sum_file *file, int size, int64_t offset)
{
    return file->is_database && size >= PAGE_MIN_BYTES && size <= PAGE_MAX_BYTES &&
           (size & (size - 1)) == 0 && offset % size == 0;
}

static void
note_reserve(sum_file *file, const void *data, int size, int64_t offset)
{
    if (file->is_database && offset == 0 && size > RESERVE_AT) {
        file->has_sums = ((const unsigned char *)data)[RESERVE_AT] == PAGESUM_BYTES;
    }
}

static int
sum_read(sqlite3_file *file, void *data, int size, int64_t offset)
{
    int code = real(file)->pMethods->xRead(real(file), data, size, offset);
    bool is_compared = of(file)->has_sums && of(file)->compares && is_page(of(file), size, offset);
    if (code == SQLITE_IOERR_SHORT_READ && is_compared) {
        return SQLITE_CORRUPT; /* SQLite would take zeros for the rest */
    }
    if (code != SQLITE_OK) {
        return code;
    }
    note_reserve(of(file), data, size, offset);
    if (!of(file)->has_sums || !is_page(of(file), size, offset)) {
        return SQLITE_OK;
    }
    uint64_t kept, none = 0;
    char *at = (char *)data + size - PAGESUM_BYTES;
    memcpy(&kept, at, sizeof kept);
    memcpy(at, &none, sizeof none);
    bool fits = !of(file)->compares || kept == none ||
                kept == pagesum_of(data, (size_t)size - PAGESUM_BYTES);
    return fits ? SQLITE_OK : SQLITE_CORRUPT;
}

/* SQLite does not use the reserved bytes; they may change in its page as well. */
static int
sum_write(sqlite3_file *file, const void *data, int size, int64_t offset)
{
    note_reserve(of(file), data, size, offset);
    if (of(file)->has_sums && is_page(of(file), size, offset)) {
        uint64_t sum = pagesum_of(data, (size_t)size - PAGESUM_BYTES);
        memcpy((char *)data + size - PAGESUM_BYTES, &sum, sizeof sum);
    }
    return real(file)->pMethods->xWrite(real(file), data, size, offset);
}

static int
sum_close(sqlite3_file *file)
{
    int code = real(file)->pMethods->xClose(real(file));
    free(real(file));
    return code;
}

static int
sum_file_control(sqlite3_file *file, int operation, void *argument)
{
    if (operation == PAGESUM_COMPARE || operation == PAGESUM_IGNORE) {
        of(file)->compares = operation == PAGESUM_COMPARE;
        return SQLITE_OK;
    }
    return real(file)->pMethods->xFileControl(real(file), operation, argument);
}

/* ---- passed on as they are --------------------------------------------- */

static int
sum_truncate(sqlite3_file *file, int64_t size)
{
    return real(file)->pMethods->xTruncate(real(file), size);
}

static int
sum_sync(sqlite3_file *file, int flags)
{
    return real(file)->pMethods->xSync(real(file), flags);
}

static int
sum_file_size(sqlite3_file *file, int64_t *size)
{
    return real(file)->pMethods->xFileSize(real(file), size);
}

static int
sum_lock(sqlite3_file *file, int lock)
{
    return real(file)->pMethods->xLock(real(file), lock);
}

static int
sum_unlock(sqlite3_file *file, int lock)
{
    return real(file)->pMethods->xUnlock(real(file), lock);
}

static int
sum_check_reserved_lock(sqlite3_file *file, int *result)
{
    return real(file)->pMethods->xCheckReservedLock(real(file), result);
}

static int
sum_sector_size(sqlite3_file *file)
{
    return real(file)->pMethods->xSectorSize(real(file));
}

static int
sum_device_characteristics(sqlite3_file *file)
{
    return real(file)->pMethods->xDeviceCharacteristics(real(file));
}

static int
sum_shm_map(sqlite3_file *file, int region, int size, int extend, void volatile **found)
{
    return real(file)->pMethods->xShmMap(real(file), region, size, extend, found);
}

static int
sum_shm_lock(sqlite3_file *file, int offset, int count, int flags)
{
    return real(file)->pMethods->xShmLock(real(file), offset, count, flags);
}

static void
sum_shm_barrier(sqlite3_file *file)
{
    real(file)->pMethods->xShmBarrier(real(file));
}

static int
sum_shm_unmap(sqlite3_file *file, int remove)
{
    return real(file)->pMethods->xShmUnmap(real(file), remove);
}

static const sqlite3_io_methods methods = {
    .iVersion = 2,
    .xClose = sum_close,
    .xRead = sum_read,
    .xWrite = sum_write,
    .xTruncate = sum_truncate,
    .xSync = sum_sync,
    .xFileSize = sum_file_size,
    .xLock = sum_lock,
    .xUnlock = sum_unlock,
    .xCheckReservedLock = sum_check_reserved_lock,
    .xFileControl = sum_file_control,
    .xSectorSize = sum_sector_size,
    .xDeviceCharacteristics = sum_device_characteristics,
    .xShmMap = sum_shm_map,
    .xShmLock = sum_shm_lock,
    .xShmBarrier = sum_shm_barrier,
    .xShmUnmap = sum_shm_unmap,
};

static int
sum_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *flags_out)
{
    (void)vfs;
    sqlite3_vfs *below = base();
    sum_file *opened = of(file);
    memset(opened, 0, sizeof *opened);
    opened->is_database = (flags & SQLITE_OPEN_MAIN_DB) != 0;
    opened->real = calloc(1, (size_t)below->szOsFile);
    if (opened->real == NULL) {
        return SQLITE_NOMEM;
    }
    int code = below->xOpen(below, name, opened->real, flags, flags_out);
    if (code == SQLITE_OK) {
        opened->file.pMethods = &methods;
        return SQLITE_OK;
    }
    if (opened->real->pMethods != NULL) {
        opened->real->pMethods->xClose(opened->real);
    }
    free(opened->real);
    return code; /* without methods, so that SQLite does not close it */
}

static int
sum_delete(sqlite3_vfs *vfs, const char *name, int sync)
{
    (void)vfs;
    return base()->xDelete(base(), name, sync);
}

static int
sum_access(sqlite3_vfs *vfs, const char *name, int flags, int *result)
{
    (void)vfs;
    return base()->xAccess(base(), name, flags, result);
}

static int
sum_full_pathname(sqlite3_vfs *vfs, const char *name, int size, char *path)
{
    (void)vfs;
    return base()->xFullPathname(base(), name, size, path);
}

static int
sum_randomness(sqlite3_vfs *vfs, int size, char *bytes)
{
    (void)vfs;
    return base()->xRandomness(base(), size, bytes);
}

static int
sum_sleep(sqlite3_vfs *vfs, int microseconds)
{
    (void)vfs;
    return base()->xSleep(base(), microseconds);
}

static int
sum_current_time(sqlite3_vfs *vfs, double *days)
{
    (void)vfs;
    return base()->xCurrentTime(base(), days);
}

static int
sum_get_last_error(sqlite3_vfs *vfs, int size, char *message)
{
    (void)vfs;
    return base()->xGetLastError == NULL ? 0 : base()->xGetLastError(base(), size, message);
}

/* Nothing loads a library through this VFS. */
int
pagesum_register(const sqlite_api *api)
{
    static sqlite3_vfs vfs = {
        .iVersion = 1,
        .szOsFile = sizeof(sum_file),
        .zName = PAGESUM_VFS,
        .xOpen = sum_open,
        .xDelete = sum_delete,
        .xAccess = sum_access,
        .xFullPathname = sum_full_pathname,
        .xRandomness = sum_randomness,
        .xSleep = sum_sleep,
        .xCurrentTime = sum_current_time,
        .xGetLastError = sum_get_last_error,
    };
    sqlite = api;
    vfs.mxPathname = base()->mxPathname;
    return api->vfs_register(&vfs, 0);
}
