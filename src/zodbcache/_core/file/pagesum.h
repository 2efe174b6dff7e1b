/* An SQLite VFS that keeps a checksum in each page of a database file.
 *
 * A row's own checksum tells that its bytes are as they were.  It does not tell
 * that the tree above it leads there: with a flipped bit in an inner page, a
 * row that is to be deleted is not found, and a scan shows it later (I1).
 *
 * The last eight bytes of a page are reserved for it (byte 20 of the file says
 * so, and a file that has no such reserve is read and written as it is).  It is
 * computed when a page goes into the database file.  It is compared when a page
 * comes from there over a connection that has asked for it, as one that deletes
 * rows should; a page that differs is SQLITE_CORRUPT then.  What the WAL holds
 * has SQLite's own checksums, which are compared when it is recovered.  There
 * the reserved bytes are 0, for none, and so they are in the database file
 * where another program has copied the WAL: it only has to look into the file.
 *
 * Everything else is the default VFS's, whichever it is when a file is opened.
 */
#ifndef ZODBCACHE_PAGESUM_H
#define ZODBCACHE_PAGESUM_H

#include <stddef.h>
#include <stdint.h>

#include "sqlite.h"

#define PAGESUM_VFS "zodbcache"
#define PAGESUM_BYTES 8

/* File controls without argument: compare from now on, or no more. */
#define PAGESUM_COMPARE 0x5a4f4301
#define PAGESUM_IGNORE 0x5a4f4300

/* Make the VFS known to SQLite.  Return a result code. */
int pagesum_register(const sqlite_api *api);

/* Over so many bytes, a multiple of four; 0 for zeros, as pages are that were
 * never written. */
uint64_t pagesum_of(const void *data, size_t size);

#endif
