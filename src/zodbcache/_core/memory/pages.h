/* Address space that costs memory only where it is touched.
 *
 * A reservation never moves, so that a table grows in place and an offset
 * stays an offset.  pages_release gives touched pages back to the system;
 * they read as zeros afterwards.
 */
#ifndef ZODBCACHE_PAGES_H
#define ZODBCACHE_PAGES_H

#include <stdbool.h>
#include <stddef.h>

/* Return zeroed address space of size_bytes, or NULL. */
void *pages_reserve(size_t size_bytes);

/* Ask for large pages, which halve the cost of a random access.  A hint. */
void pages_prefer_huge(void *base, size_t size_bytes);

/* Give the whole pages inside [base + from, base + to) back. */
void pages_release(void *base, size_t from_bytes, size_t to_bytes);

void pages_free(void *base, size_t size_bytes);

#endif
