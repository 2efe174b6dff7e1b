/* CRC-32 as zlib and Ethernet have it: reflected, polynomial 0xedb88320.
 *
 * crc32_of(0, ...) begins; what it returns goes on.  Sixteen bytes at a time
 * (Kounavis and Berry, "A systematic approach to building high performance,
 * software-based, CRC generators", ISCC 2005).
 */
#ifndef ZODBCACHE_CRC32_H
#define ZODBCACHE_CRC32_H

#include <stddef.h>
#include <stdint.h>

/* Fill the tables; before the first crc32_of. */
void crc32_begin(void);

uint32_t crc32_of(uint32_t crc, const void *data, size_t size);

#endif
